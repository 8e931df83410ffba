"""As data: the ports of a spec, what the kernel of a DPU has, and how what is ours in it is named."""
