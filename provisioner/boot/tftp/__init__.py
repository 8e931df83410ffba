"""The first stage, by TFTP."""
