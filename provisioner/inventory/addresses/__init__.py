"""Addresses of servers: which there are, which one gets, how it claims it; `judge`: what the inventory says of it."""
