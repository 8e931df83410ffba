"""What parent and worker say to each other over their pipe. Both are the same program of the same version."""

from __future__ import annotations

from typing import Final, NamedTuple

from provisioner.boot.dhcp.model.config import DhcpConfig
from provisioner.boot.dhcp.model.sighting import Sighting
from provisioner.boot.dhcp.responder.inventory import Delta
from provisioner.boot.dhcp.responder.tally import Tally


class WorkerQueue(NamedTuple):
    """A listener as the worker inherits it."""

    fd: int
    interface: str | None
    interface_index: int
    discovers: bool


class Addresses(NamedTuple):
    """The IPv4 addresses of the interfaces, by name."""

    by_interface: dict[str, tuple[bytes, ...]]


class Traced(NamedTuple):
    """The MAC addresses whose packets are handed over, whatever becomes of them."""

    macs: frozenset[bytes] = frozenset()


class Setup(NamedTuple):
    """The first message to a worker, once it has sent its first, empty Report."""

    config: DhcpConfig
    queues: tuple[WorkerQueue, ...]
    forward_fd: int
    """SOCK_SEQPACKET: the supervisor reads from it what the other workers write, packets of unknown machines."""
    keeps_discovery: bool
    addresses: Addresses
    known: Delta | None
    """The whole inventory; None while it is not known."""
    traced: Traced = Traced()


ToWorker = Setup | Addresses | Delta | Traced


class TracedPacket(NamedTuple):
    """A packet of a traced MAC address, as long as MOST_TRACED_BYTES, what the responder decided, and its answer."""

    data: bytes
    verdict: str
    reply: bytes | None
    left_out: int = 0
    """How many more of the same MAC address came in the time of its report, and are not in it."""


class WorkerReport(NamedTuple):
    """From a worker: what it saw, and what it counted since its last one."""

    sightings: tuple[Sighting, ...]
    tally: Tally
    traced: tuple[TracedPacket, ...] = ()


HEARTBEAT_SECONDS: Final = 3.0
"""A worker reports at least this often."""

MOST_SIGHTINGS: Final = 200
"""In one report: small enough (50 KB) that a socket which reports itself writable takes it without blocking."""

MOST_TRACED: Final = 16
"""MAC addresses that are traced at a time, and packets of theirs in one report: who floods is not told whole."""
MOST_TRACED_OF_ONE: Final = 4
MOST_TRACED_BYTES: Final = 700
