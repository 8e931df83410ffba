"""Verification before use, and where each server is in its life: facts are compared, checks run, taints lifted."""
