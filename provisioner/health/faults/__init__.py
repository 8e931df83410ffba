"""Faults of servers: what sources report, one record for each on the Server."""
