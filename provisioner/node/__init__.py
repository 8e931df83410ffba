"""What runs inside the images. Needs nothing but Python's standard library."""
