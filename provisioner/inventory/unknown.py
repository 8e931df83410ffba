"""Discovered Servers that nobody touches are deleted: by age, and where too many wait.

One leader does it for all boot hosts, which only create them. Only what `is_untouched` says is deleted, and only as it
was looked at (uid and resourceVersion); a ValidatingAdmissionPolicy lets the account delete nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import structlog

from provisioner.api import Server
from provisioner.api.machinery.errors import Conflict, Refused
from provisioner.api.machinery.meta import parse_time
from provisioner.api.servers.discovery import (
    NAME_PREFIX,
    RackPlace,
    Waiting,
    give_way,
    is_untouched,
    is_waiting,
    place_of,
)
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.resources import of
from provisioner.cluster.source import Source

log = structlog.get_logger(__name__)

KEY: Final = "unknown-machines"
"""They are looked at together, for they give way to each other."""
SETTLE_SECONDS: Final = 1.0
"""Many that appear at once are looked at once."""


class UnknownMachines:
    """Follows the cache of Servers from the start; `controller` does the work."""

    def __init__(self, cluster: Cluster, servers: Source, *, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._servers = servers
        self._waiting = servers.index(lambda body: [KEY] if is_waiting(body) else [])
        self._clock = clock
        self.controller = Controller("inventory-unknown-machines", self.reconcile)
        servers.subscribe(self._changed)

    def reconcile(self, key: str) -> float | None:
        """Delete those that are to go; returns after how many seconds the next one may be."""
        if not self._servers.has_synced:
            return SETTLE_SECONDS
        bodies = {body["metadata"]["name"]: body for body in self._waiting.get(key)}
        untouched = [_waiting(body) for body in bodies.values() if is_untouched(body)]
        gone, again = give_way(untouched, Counter[RackPlace](place_of(body) for body in bodies.values()), self._clock())
        for name in gone:
            metadata = bodies[name]["metadata"]
            try:
                self._cluster.delete(
                    of(Server), name, uid=metadata["uid"], resource_version=metadata["resourceVersion"]
                )
            except Conflict:
                continue  # it has changed: the cache will say so
            except Refused as error:
                log.warning("unknown machine was not forgotten", server=name, error=str(error))
                continue  # it holds up none of the others
            log.info("unknown machine that nobody touched was forgotten", server=name)
        return again

    def _changed(self, name: str, _old: Any, _new: Any) -> None:
        if name.startswith(NAME_PREFIX):
            self.controller.queue.add_after(KEY, SETTLE_SECONDS)


def _waiting(body: dict[str, Any]) -> Waiting:
    discovery = (body.get("status") or {}).get("discovery") or {}
    return Waiting(
        name=body["metadata"]["name"],
        place=place_of(body),
        created=parse_time(body["metadata"]["creationTimestamp"]),
        by_dhcp="dhcpTime" in discovery,
    )
