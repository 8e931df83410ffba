"""The GPUs of this machine: what NVML and the kernel say of them, as facts for the cluster and as metrics."""
