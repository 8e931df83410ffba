"""The phases of a Maintenance, each a pure decision."""
