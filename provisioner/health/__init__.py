"""Checks before use: what a booted machine has is compared with what it should have, and only then may it be used."""
