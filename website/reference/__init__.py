"""Reference pages, generated from what the code says of itself."""
