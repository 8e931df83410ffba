"""A machine asks to join: who asked, what it says of itself, whether it may, and what it gets."""
