"""The service on a route reflector's host: its bgpd lets through what the DPUNetworks say, and nothing else."""
