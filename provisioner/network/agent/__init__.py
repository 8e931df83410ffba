"""The DPU's agent: what its DPUNetwork wants, what the kernel has, and the difference between them."""
