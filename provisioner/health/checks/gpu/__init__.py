"""NVIDIA's GPUs: the driver, and how each GPU is, by what the agent read of NVML and the kernel log. Pure."""
