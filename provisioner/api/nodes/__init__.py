"""Maintenances, and what is on a Node."""
