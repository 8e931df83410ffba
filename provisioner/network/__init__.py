"""Tenant networks: allocated and compiled by the controller, enforced on the DPUs."""
