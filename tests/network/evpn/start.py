"""How bgpd is started, as docs/evpn.md has it, and a file for it to start with."""

from __future__ import annotations

from pathlib import Path

from provisioner.network.evpn.configuration import Configuration, commands

PROGRAM = "/usr/lib/frr/bgpd"


def command(directory: Path, *, listens: bool) -> list[str]:
    """`directory`: for its sockets and its file. `listens`: on a reflector."""
    files = ("-f", str(directory / "bgpd.conf"), "-i", str(directory / "bgpd.pid"), "--vty_socket", str(directory))
    # It reads and writes no routes of the kernel (-n), asks no zebra (-Z), and has no terminal on the network (-P 0).
    return [PROGRAM, "-Z", "-n", "-P", "0", "-p", "179" if listens else "0", *files]


def render(configuration: Configuration) -> str:
    """A file with which bgpd starts."""
    return "".join(f"{line}\n" for line in commands(configuration, {}))
