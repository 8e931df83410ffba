"""The BMCs of a virtual rack, emulated."""
