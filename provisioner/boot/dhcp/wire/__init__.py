"""DHCP on the wire: what a packet says, and the bytes of what it is answered."""
