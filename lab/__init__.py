"""A rack on one machine: a real control plane, QEMU servers and their BMCs."""
