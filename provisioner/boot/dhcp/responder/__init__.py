"""Identify the client and choose its reply: from the inventory, and from addresses lent to unknown machines."""
