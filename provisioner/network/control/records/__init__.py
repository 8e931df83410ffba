"""Reads tenants and DPUs from the API into facts, and writes the results."""
