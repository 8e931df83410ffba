"""Tenant networks on InfiniBand: a partition for each VPC, whose members follow the attachments of servers.

The controller compiles one InfiniBandNetwork for each fabric. What enforces it acknowledges it: for OpenSM a process
on the subnet manager's host (`opensm`), for UFM the controller itself (`ufm`).
"""
