"""What containerd would have written at its first start, made without running it."""
