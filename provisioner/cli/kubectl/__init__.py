"""`kubectl provision …`: what a person asks for, and what is told."""
