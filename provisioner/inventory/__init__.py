"""Racks and servers: register, discover, accept, allocate addresses."""
