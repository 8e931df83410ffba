"""Partitions by the REST API of NVIDIA UFM."""
