"""What the gates judge, read once: trees, layers as they are packed, kernel modules, and whose each file is."""
