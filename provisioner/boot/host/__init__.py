"""What a boot host runs: the service, nginx, TFTP, and what they need on its disk."""
