"""The boot plane: how a host boots and joins through its DPU without a way to the underlay.

Beside its VPC the host has its address on the boot network (`Server.status.address`). What it sends in that name, and
DHCP that it sends in none, is taken off its port before anything of the VPC sees it, and handed to a namespace of its
own on the DPU, in which nothing is forwarded and every address is the DPU's: whichever the host asks for, the boot
host's or its gateway's, the DPU answers. So neither the scripts nor the certificates know of it, and addresses of a VPC
may be the same ones.

`plane` says whose it is and which services there are, `wanted` what the kernel has for it, `rules/boot.py` the rules.
`server` answers there: `dhcp`, `tftp`, `proxy` (`request` says what may be asked for, `image_cache` keeps images), and
passes the join and the API server's TLS on, unread (`listeners`).
"""
