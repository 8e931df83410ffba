"""Commands, flags, environment and wiring."""
