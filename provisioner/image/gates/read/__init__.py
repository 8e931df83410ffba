"""What the gates judge, read once: trees, packed layers, kernel modules, whose each file is, what may be secret."""
