"""`kubectl provision vpc …`: what a tenant does with its networks, with the rights that it has in its namespace."""
