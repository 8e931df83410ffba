"""DHCPv4 on hosts' ports: a host in a VPC is told its address, its gateway and the VPC's MTU, whatever its image knows.

There are no leases: a port has one host, and the host has one address for as long as it is in the VPC. `served` reads
from a dump of the kernel which ports are answered and with what; `answer` decides, `wire` is the packets, `server` the
sockets, one for each port. What reaches them `rules/dhcp.py` says.
"""
