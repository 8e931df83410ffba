"""What the image is made of: distribution packages, Go modules, and how their versions compare."""
