"""Proof by a TPM 2.0 that a machine is the one it says, and that it booted what it should: the server's side, pure.

Start at `judge.py`. Nothing here knows Kubernetes or a network; clock and randomness are arguments.
"""
