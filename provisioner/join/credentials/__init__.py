"""Which client certificates count: those of the current boot, in a list that the API server asks."""
