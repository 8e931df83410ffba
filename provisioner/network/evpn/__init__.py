"""Routes of tenant networks by BGP EVPN (FRR's bgpd) instead of by the API server, where the NetworkPool chooses it.

Each DPU announces what lies behind its own ports; route reflectors hand it to the DPUs of the same VPC. What a DPU
reads there becomes `remotes` of its spec (`learn.py`), and the agent enforces that as it does any other. Nothing that
came by BGP reaches the kernel in another way: bgpd runs without zebra.
"""
