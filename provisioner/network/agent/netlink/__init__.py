"""Netlink, as much of it as a routing domain needs: messages of whole batches, and dumps read by one pass.

pyroute2 waits for the answer to each message; here a thousand are one write, and what the kernel refuses is told by its
place in the batch. Source: rtnetlink(7), linux/rtnetlink.h, linux/if_link.h, linux/neighbour.h,
linux/netfilter/nf_tables.h.
"""
