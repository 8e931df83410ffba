"""A finished image: its manifest and signature, whether it is whole, and where it is published."""
