"""Packing lists as vendors and people write them, read into what they hold."""
