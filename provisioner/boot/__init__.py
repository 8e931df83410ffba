"""A server's way from power-on to its root image: DHCP, TFTP, scripts, HTTP, boot orders and progress."""
