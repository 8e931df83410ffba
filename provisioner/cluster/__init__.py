"""The only door to Kubernetes: read, watch, apply, events, leases."""
