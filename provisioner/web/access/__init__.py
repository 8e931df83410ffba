"""Who may see the pages: whom the API server knows, and allows to read all that they show."""
