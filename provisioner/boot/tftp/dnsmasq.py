"""TFTP for the first stage: the command line of dnsmasq in TFTP-only mode. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import Final

DNSMASQ: Final = "/usr/sbin/dnsmasq"
SETPRIV: Final = "/usr/bin/setpriv"

LARGEST_BLOCK_BYTES: Final = 1432
_HEADERS_BYTES: Final = 32  # IP, UDP and TFTP, as dnsmasq reckons


PROBE_FILE: Final = "probe"
"""What the service fetches from itself, to see whether TFTP answers."""


def run_as(user: str | None) -> list[str]:
    """What stands before dnsmasq's command: it runs as `user` from the start, with nothing but the right to open port
    69. None leaves everything as it is. (Were it to change the user by itself, the kernel would forget to end it with
    its parent.)
    """
    if user is None:
        return []
    capabilities = ["--inh-caps=-all,+net_bind_service", "--ambient-caps=+net_bind_service"]
    return [SETPRIV, f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", *capabilities]


def dnsmasq_command(root: Path, address: str) -> list[str]:
    """Serve `root` read-only on port 69 of `address`: no DNS, no DHCP, blocks up to 1432 bytes.

    It says of each transfer how it ended, on its standard error.

    dnsmasq never acknowledges `windowsize`: with loss, EDK2 turned 1.7 MB into 20 GB of traffic by it.
    """
    return [
        DNSMASQ,
        "--keep-in-foreground",
        "--conf-file=/dev/null",
        "--pid-file",
        "--log-facility=-",
        "--port=0",
        "--enable-tftp",
        f"--tftp-root={root}",
        f"--tftp-mtu={LARGEST_BLOCK_BYTES + _HEADERS_BYTES}",
        "--tftp-max=1000",
        f"--listen-address={address}",
        "--bind-interfaces",
    ]
