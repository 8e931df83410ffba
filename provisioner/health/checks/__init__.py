"""The checks that need nothing run: what the agent says a machine is, against what it was to be. Pure."""
