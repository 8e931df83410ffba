"""Runs where OpenSM runs: the partitions file, the signal that makes OpenSM read it, and the ports' own tables."""
