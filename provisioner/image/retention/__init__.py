"""Which images may go, and how they go: nothing that is in use, assigned or wanted, whatever happens meanwhile."""
