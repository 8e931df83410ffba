"""The processes that answer: one for each core, their sockets, and the parent that feeds them."""
