"""NodePools: upgrades, checks, settings."""
