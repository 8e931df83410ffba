"""What the kernel log says of the machine: its reader, and the faults that are found in it."""
