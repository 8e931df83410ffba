"""The Node of a server before its kubelet joins, and the boot that it belongs to."""
