"""Ports for programs that are started a moment after their port was chosen."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import NeedsHuman

LENT: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
FIRST, LAST = 12000, 29999
ATTEMPTS: Final = 100
_marks: list[socket.socket] = []
"""Of the ports that this process was given, which it may not have used yet: neither another process nor who asks twice
gets one of them. A mark is as a port is: of one network namespace, and gone with its process."""


def free_port(address: str, kind: socket.SocketKind = socket.SOCK_STREAM) -> int:
    """A port, of TCP if `kind` is not given, that nobody had a moment ago. Raises: NeedsHuman if this machine lacks the
    address.

    It is none of those that the kernel lends to connections and to whoever asks for any port: one of these could be
    somebody else's before its program has it.
    """
    last = min(LAST, int(LENT.read_text().split()[0]) - 1)
    for attempt in range(ATTEMPTS):
        # Where the kernel lends all of them, and where none of many is free, it has to be one of those.
        wanted = random.SystemRandom().randint(FIRST, last) if last >= FIRST and attempt < ATTEMPTS - 1 else 0
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with socket.socket(type=kind) as probe:
            try:
                if wanted:
                    mark.bind(f"\0provisioner-port-{kind.name}-{wanted}")
                probe.bind((address, wanted))
            except OSError as error:
                mark.close()
                if error.errno == errno.EADDRINUSE and wanted:
                    continue
                hint = "run it in the network namespace that has it, with `lo` up"
                raise NeedsHuman(f"no control plane at {address}: {error.strerror}", hint=hint) from error
            port: int = probe.getsockname()[1]
        _marks.append(mark)
        return port
    raise AssertionError("the last attempt returns or raises")
