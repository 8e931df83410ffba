"""Who asks, and what it gets: the decision about each packet, from the inventory alone. Pure."""
