"""What parent and worker say to each other over their pipe. Both are the same program of the same version."""

from __future__ import annotations

from typing import Final, NamedTuple

from provisioner.boot.dhcp.config import DhcpConfig
from provisioner.boot.dhcp.inventory import Delta
from provisioner.boot.dhcp.sighting import Sighting


class Queue(NamedTuple):
    """A listener as the worker inherits it."""

    fd: int
    interface: str | None
    interface_index: int
    discovers: bool


class Addresses(NamedTuple):
    """The IPv4 addresses of the interfaces, by name."""

    by_interface: dict[str, tuple[bytes, ...]]


class Setup(NamedTuple):
    """The first message to a worker, once it has sent its first, empty Report."""

    config: DhcpConfig
    queues: tuple[Queue, ...]
    forward_fd: int
    """SOCK_SEQPACKET: the supervisor reads from it what the other workers write, packets of unknown machines."""
    keeps_discovery: bool
    addresses: Addresses
    known: Delta | None
    """The whole inventory; None while it is not known."""


ToWorker = Setup | Addresses | Delta


class Report(NamedTuple):
    """From a worker: what it saw, and by how much each counter rose."""

    sightings: tuple[Sighting, ...]
    counters: dict[str, int]


HEARTBEAT_SECONDS: Final = 3.0
"""A worker reports at least this often."""

MOST_SIGHTINGS: Final = 200
"""In one report: small enough (50 KB) that a socket which reports itself writable takes it without blocking."""
