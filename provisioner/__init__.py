"""Turns servers without an operating system into Kubernetes nodes, and keeps Kubernetes as the only state."""

__version__ = "0.2.0"
