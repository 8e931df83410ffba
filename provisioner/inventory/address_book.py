"""Which addresses servers have, read past every cache, and what this process gave since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from provisioner.api import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.inventory.allocate import Holders

Object = Mapping[str, Any]

FRESH_SECONDS: Final = 1.0
"""How long one reading serves: a rack registered at once is one reading, not one a server."""


def read_holders(servers: Iterable[Object], given_here: Mapping[str, str] | None = None) -> Holders:
    """Holders by the JSON of all servers, and by what was given since, by server."""
    given: defaultdict[str, set[str]] = defaultdict(set)
    pinned: defaultdict[str, set[str]] = defaultdict(set)
    for server in servers:
        name = server["metadata"]["name"]
        address = (given_here or {}).get(name) or (server.get("status") or {}).get("address")
        if address:
            given[address].add(name)
        if server["spec"].get("bootAddress") and server["spec"].get("acceptance") != "Rejected":
            pinned[server["spec"]["bootAddress"]].add(name)
    return Holders(given, pinned)


class AddressBook:
    """Used by one thread. `monotonic` is a clock in seconds."""

    def __init__(self, cluster: Cluster, *, monotonic: Callable[[], float]) -> None:
        self._cluster = cluster
        self._monotonic = monotonic
        self._read_at: float | None = None
        self._servers: list[dict[str, Any]] = []
        self._given: dict[str, str] = {}

    def holders(self) -> Holders:
        """Who has which address, as the API server knew it at most a second ago, and what was noted since."""
        now = self._monotonic()
        if self._read_at is None or now - self._read_at > FRESH_SECONDS:
            self._servers = self._cluster.list(of(Server)).items
            self._read_at = now
            self._given.clear()
        return read_holders(self._servers, self._given)

    def note(self, server: str, address: str) -> None:
        """`server` was given `address`: known here before the next reading shows it."""
        self._given[server] = address
