"""The Maintenances that are not over, by server. Finished ones are kept for weeks: nobody goes through all of them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from provisioner.api import Maintenance
from provisioner.api.codec import decode
from provisioner.api.maintenance import FINAL_PHASES, holding_maintenance
from provisioner.cluster.source import Source


class MaintenanceIndex:
    """Follows a cache of Maintenances from the moment that it is made."""

    def __init__(self, maintenances: Source) -> None:
        self._lock = threading.Lock()
        self._active: dict[str, dict[str, Mapping[str, Any]]] = {}
        maintenances.subscribe(self._changed)

    def holding(self, server: str) -> Maintenance | None:
        """The Maintenance that holds `server`."""
        with self._lock:
            found = list(self._active.get(server, {}).values())
        return holding_maintenance((decode(Maintenance, body) for body in found), server)

    def _changed(self, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        with self._lock:
            for body in (old, new):
                if body is not None:
                    self._active.get(server_of(body), {}).pop(name, None)
            if new is not None and (new.get("status") or {}).get("phase") not in FINAL_PHASES:
                self._active.setdefault(server_of(new), {})[name] = new
            for body in (old, new):
                if body is not None and not self._active.get(server_of(body)):
                    self._active.pop(server_of(body), None)


def server_of(maintenance: Mapping[str, Any]) -> str:
    """spec.serverRef of a Maintenance's JSON."""
    return str((maintenance.get("spec") or {}).get("serverRef"))
