"""From changes of the copies to rows of the fleet, and to frames that are told: at most one a second, of bounded size.

A storm of changes is taken up in its order; what was changed ten times meanwhile is told once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import structlog

from provisioner.web.broadcast import Broadcast
from provisioner.web.caches import WebCaches, server_of
from provisioner.web.fleet import Fleet
from provisioner.web.row import ServerRow, row_of
from provisioner.web.states import STATES

log = structlog.get_logger()

Object = dict[str, Any]
TICK_SECONDS: Final = 1.0
ROWS_OF_FRAME: Final = 1000
"""Of 10,000 servers that boot at once all are shown after ten seconds."""
SYNC_SECONDS: Final = 0.1


class FleetFollower:
    """Keeps `fleet` up to date with `caches`, and tells `broadcast`. is_caught_up: the fleet has been complete once."""

    def __init__(self, caches: WebCaches, fleet: Fleet, broadcast: Broadcast) -> None:
        self._caches, self._fleet, self._broadcast = caches, fleet, broadcast
        self._lock = threading.Lock()
        self._dirty: dict[str, None] = {}
        self._topics: dict[str, None] = {}
        self._woken = threading.Event()
        self.is_caught_up = False
        caches.servers.subscribe(self._server_changed)
        caches.maintenances.subscribe(self._maintenance_changed)
        caches.nodes.subscribe(self._node_changed)
        caches.pools.subscribe(self._topic("pools"))
        caches.racks.subscribe(self._topic("racks"))

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set."""
        while not stop.is_set():
            self._woken.wait(SYNC_SECONDS if not self.is_caught_up else TICK_SECONDS)
            try:
                self.step()
            except Exception:
                log.exception("fleet not updated")
            stop.wait(TICK_SECONDS if self.is_caught_up else SYNC_SECONDS)

    def step(self) -> int:
        """Take up to a frame's worth of changes in, and tell them; before all is known, all of them, and tell nothing.
        Returns how many servers are left."""
        catching_up = not self.is_caught_up
        complete = self._caches.are_complete
        with self._lock:
            names = list(self._dirty)[: None if catching_up else ROWS_OF_FRAME]
            for name in names:
                del self._dirty[name]
            topics, self._topics = self._topics, {}
            left = len(self._dirty)
            if not left:
                self._woken.clear()
        changes = {name: (self._fleet.put(name, new), new) for name in names for new in (self._row(name),)}
        if catching_up:
            self.is_caught_up = complete
            return left
        for name, (old, new) in changes.items():
            topics[f"servers/{name}"] = None
            topics |= {f"{kind}/{part}": None for row in (old, new) if row for kind, part in _places(row)}
        if topics:
            topics |= {topic.partition("/")[0]: None for topic in topics}
            self._broadcast.publish(self._told(changes, left), topics)
        return left

    def _row(self, name: str) -> ServerRow | None:
        """None of one that is gone. One object that cannot be read (an older CRD let it in) hides no other server."""
        body = self._caches.servers.get(name)
        if body is None:
            return None
        try:
            return row_of(body, self._caches.holding(name))
        except Exception as error:
            log.warning("server is shown without what cannot be read", server=name, error=str(error))
        with suppress(Exception):
            return row_of(body, None)
        rack = (body.get("spec") or {}).get("rackRef")
        return row_of({"metadata": {"name": name}, "spec": {"rackRef": rack if isinstance(rack, str) else ""}}, None)

    def _told(self, changes: dict[str, tuple[ServerRow | None, ServerRow | None]], left: int) -> Object:
        different = {name: pair for name, pair in changes.items() if pair[0] != pair[1]}
        shown = [
            [name, new.state, STATES[new.state].mark, new.label]
            for name, (old, new) in different.items()
            if new is not None and (old is None or (old.state, old.label) != (new.state, new.label))
        ]
        moved = any(old is None or new is None or _spot(old) != _spot(new) for old, new in different.values())
        if not shown and not moved:
            return {}
        return {"rows": shown, "moved": moved, "left": left, "counts": self._fleet.counts()}

    def _mark(self, server: str | None, *topics: str) -> None:
        with self._lock:
            if server is not None:
                self._dirty[server] = None
            self._topics |= dict.fromkeys(topics)
        self._woken.set()

    def _server_changed(self, key: str, old: Object | None, new: Object | None) -> None:
        self._mark(key)

    def _maintenance_changed(self, key: str, old: Object | None, new: Object | None) -> None:
        for server in server_of(new or old or {}):
            self._mark(server, f"maintenances/{key}")

    def _node_changed(self, key: str, old: Object | None, new: Object | None) -> None:
        if old is None or new is None or (old["spec"], old["status"]) != (new["spec"], new["status"]):
            self._mark(None, f"servers/{key}")

    def _topic(self, kind: str) -> Callable[[str, Object | None, Object | None], None]:
        return lambda key, old, new: self._mark(None, f"{kind}/{key}")


def _places(row: ServerRow) -> tuple[tuple[str, str], ...]:
    """Topics on whose pages it is shown."""
    return ("racks", row.rack), ("pools", row.pool)


def _spot(row: ServerRow) -> tuple[str, int | None, str | None]:
    return row.rack, row.unit, row.host
