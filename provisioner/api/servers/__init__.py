"""Racks, servers, their DPUs and their boots."""
