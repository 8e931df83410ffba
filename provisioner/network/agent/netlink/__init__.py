"""Netlink, as much of it as a routing domain needs. pyroute2 makes the messages that change devices and addresses.

Bulk is ours: a thousand routes, neighbours or forwarding entries are one write, what the kernel refuses of it is told
by its place, and dumps are read by one pass. Source: rtnetlink(7), linux/rtnetlink.h, linux/if_link.h,
linux/neighbour.h, linux/netfilter/nf_tables.h.
"""
