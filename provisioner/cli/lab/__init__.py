"""`provisioner lab …`."""
