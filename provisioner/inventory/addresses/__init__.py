"""Addresses of servers: which there are, which a server gets, and how it claims it."""
