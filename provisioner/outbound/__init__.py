"""Calls to what is not ours: each has an end and a size, and none that hangs takes the room of another."""
