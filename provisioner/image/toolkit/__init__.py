"""NVIDIA's container toolkit: what tells containerd, by CDI, which devices and libraries a container with GPUs gets."""
