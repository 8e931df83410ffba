"""What the kernel of a DPU has, as data, and how what is ours in it is named."""
