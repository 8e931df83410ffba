"""Desired and observed partitions compared, and the conditions that tell of it."""
