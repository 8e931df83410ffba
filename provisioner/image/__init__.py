"""Recipe to image: build, check, sign, publish."""
