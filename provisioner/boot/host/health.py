"""The checks of a boot host.

Ready is who serves machines as well as any other host could. The API server being away makes none unready: all go on
from what they know, and how old that is a metric says. Were they to step back, nobody would be left.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final, Protocol

from provisioner.boot.dhcp.workers.sockets import interface_addresses
from provisioner.boot.dhcp.workers.supervisor import WorkerStates
from provisioner.boot.health.probe import Probe
from provisioner.boot.metrics.nginx_status import Connections, read_connections
from provisioner.boot.tftp.dnsmasq import PROBE_FILE
from provisioner.cluster.health.checks import Check, HealthVerdict, ill, well
from provisioner.cluster.informer import Informer

# Fetches a file of three bytes by TFTP from this host itself: what firmware will do, seen to work.

PORT: Final = 69
ANSWER_SECONDS: Final = 3.0
_READ, _DATA, _ACKNOWLEDGE, _ERROR = 1, 3, 4, 5
_LARGEST: Final = 2048


def is_here(address: str) -> bool:
    """Whether this host has it now: one that moves between boot hosts would be answered by another."""
    wanted = IPv4Address(address)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        found = interface_addresses(asked)
    return wanted.is_loopback or any(wanted.packed in addresses for addresses in found.values())


def fetch_probe(address: str, port: int = PORT) -> None:
    """Raises: OSError if it does not come."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asked:
        asked.settimeout(ANSWER_SECONDS)
        asked.bind((address, 0))
        asked.sendto(struct.pack("!H", _READ) + PROBE_FILE.encode() + b"\0octet\0", (address, port))
        answer, peer = asked.recvfrom(_LARGEST)
        if len(answer) < 4:
            raise OSError("TFTP answered with too few bytes")
        code, number = struct.unpack("!HH", answer[:4])
        if code == _ERROR:
            raise OSError(f"TFTP answered with error {number}: {answer[4:80].rstrip(bytes(1)).decode('latin-1')}")
        if code != _DATA:
            raise OSError(f"TFTP answered with packet type {code}, expected {_DATA}")
        asked.sendto(struct.pack("!HH", _ACKNOWLEDGE, number), peer)


BEHIND_SECONDS: Final = 60.0
"""So long scripts may be older than the inventory: all of them together take less."""
AWAY_SECONDS: Final = 5.0
"""So long a DHCP worker may be away that was ready: another one takes a second to start, and its queue is kept."""
TFTP_FAILURES: Final = 5
"""dnsmasq answers nobody new while it has as many transfers under way as it may, which last seconds."""
HUNG_SECONDS: Final = 900.0
"""A watch begins anew every minute, and waits half a minute between attempts at most."""


class Scripts(Protocol):
    """What is read of the renderer."""

    @property
    def ready(self) -> bool: ...

    @property
    def scripts(self) -> int: ...

    def pending(self) -> tuple[int, float]: ...


def inventory_check(caches: Sequence[Informer]) -> Check:
    def look() -> HealthVerdict:
        missing = sorted(cache.kind for cache in caches if not cache.has_synced)
        if missing:
            return ill(f"not known yet: {', '.join(missing)}")
        oldest = max(cache.heard_seconds() for cache in caches)
        return well(f"the API server was last heard {oldest:.0f} s ago")

    return Check("inventory", look)


def scripts_check(renderer: Scripts) -> Check:
    def look() -> HealthVerdict:
        if not renderer.ready:
            return ill("they are not written yet")
        count, seconds = renderer.pending()
        if seconds > BEHIND_SECONDS:
            return ill(f"{count} of {renderer.scripts} have waited {seconds:.0f} s to be written; the log says why")
        return well(f"{renderer.scripts} are written")

    return Check("scripts", look)


class DhcpCheck:
    """Whether every worker answers: each has machines of its own, which nobody else would answer."""

    def __init__(self, states: Callable[[], WorkerStates]) -> None:
        self._states = states
        self._were_ready = False

    def look(self) -> HealthVerdict:
        found = self._states()
        self._were_ready = self._were_ready or found.ready == found.workers
        words = f"{found.ready} of {found.workers} workers answer"
        if found.ready == found.workers or (self._were_ready and found.away_seconds <= AWAY_SECONDS):
            return well(words)
        return ill(words)


class NginxProbe:
    """Asks nginx for its connections, and keeps what it said last."""

    def __init__(self, status: Path) -> None:
        self._status = status
        self.connections: Connections | None = None
        self.probe = Probe("nginx", self._attempt)

    def _attempt(self) -> str:
        self.connections = None
        self.connections = read_connections(self._status)
        return f"{sum(self.connections)} connections"


def tftp_probe(address: str, pid: Callable[[], int | None]) -> Probe:
    """`pid`: dnsmasq's, None while it does not run."""

    def attempt() -> str:
        if pid() is None:
            raise OSError("dnsmasq does not run")
        if not is_here(address):
            return f"dnsmasq runs; {address} is at another host"
        fetch_probe(address)
        return "a file was fetched"

    return Probe("tftp", attempt, failures=TFTP_FAILURES)


def store_probe(folder: Path) -> Probe:
    """Whether the image store can be read: it may be a network's."""

    def attempt() -> str:
        with os.scandir(folder) as entries:
            next(entries, None)
        return "it can be read"

    return Probe("store", attempt)


def threads_check(threads: Callable[[], Sequence[threading.Thread]]) -> Check:
    """Whether all still run that never end by themselves."""

    def look() -> HealthVerdict:
        dead = sorted(thread.name for thread in threads() if not thread.is_alive())
        return ill(f"ended: {', '.join(dead)}") if dead else well()

    return Check("threads", look)


def watches_check(caches: Sequence[Informer]) -> Check:
    """Whether the inventory is still followed, be it without success."""

    def look() -> HealthVerdict:
        dead = sorted(cache.kind for cache in caches if cache.is_dead or cache.turned_seconds() > HUNG_SECONDS)
        return ill(f"ended or hung: {', '.join(dead)}") if dead else well()

    return Check("watches", look)


class BootHostHealth:
    """The checks of one boot host. dhcp: None where it answers none; tftp: dnsmasq's process id, None where there is no
    TFTP."""

    def __init__(
        self,
        *,
        address: str,
        caches: Sequence[Informer],
        scripts: Scripts,
        dhcp: Callable[[], WorkerStates] | None,
        nginx_status: Path,
        tftp: Callable[[], int | None] | None,
        images: Path,
        threads: Callable[[], Sequence[threading.Thread]],
    ) -> None:
        self.nginx = NginxProbe(nginx_status)
        probes = [self.nginx.probe, *([tftp_probe(address, tftp)] if tftp is not None else []), store_probe(images)]
        self.probes: Final = tuple(probes)
        self.readiness: Final = (
            inventory_check(caches),
            scripts_check(scripts),
            *([Check("dhcp", DhcpCheck(dhcp).look)] if dhcp is not None else []),
            *(Check(probe.name, probe.verdict) for probe in probes),
        )
        self.liveness: Final = (threads_check(threads), watches_check(caches))
