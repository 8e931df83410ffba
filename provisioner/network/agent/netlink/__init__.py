"""Netlink, as much of it as a routing domain needs. pyroute2 makes the messages that change devices and addresses.

Bulk entries have an encoder of our own: a thousand routes, neighbours or forwarding entries go out in one write,
refusals are reported by position, and a dump is read in one pass.

Source: rtnetlink(7), linux/rtnetlink.h, linux/if_link.h, linux/neighbour.h, linux/netfilter/nf_tables.h.
"""
