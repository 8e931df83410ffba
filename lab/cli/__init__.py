"""`bin/lab …`."""
