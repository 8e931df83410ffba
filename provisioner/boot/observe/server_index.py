"""Servers by MAC address, by indices of an informer's cache."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from provisioner.api.discovery import NAME_PREFIX
from provisioner.cluster.source import Object, Source
from provisioner.rules.identity import boot_mac, find_server, macs_of


class ServerIndex:
    """Which Server has a MAC address, and how many unknown machines wait."""

    def __init__(self, servers: Source) -> None:
        self.servers = servers
        self._by_mac = servers.index(macs_of)
        self._lock = threading.Lock()
        self._waiting: set[str] = set()

    def attach(self) -> None:
        """Follow the informer. Call once, before it starts or after: what it already has is taken over."""
        self.servers.subscribe(self._changed)
        for server in self.servers.items():
            self._changed(server["metadata"]["name"], None, server)

    def booting_from(self, mac: str) -> Object | None:
        """The Server that boots from `mac`."""
        found = self.having(mac)
        return found if found is not None and boot_mac(found) == mac else None

    def having(self, mac: str) -> Object | None:
        """The Server that boots from `mac`, or else lists it among its further interfaces."""
        return find_server(mac, self._by_mac.get(mac))

    def count_waiting(self) -> int:
        """How many unknown machines wait for a person: kept, not counted, since any stranger may ask."""
        return len(self._waiting)

    def _changed(self, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        with self._lock:
            if new is not None and _is_waiting(name, new):
                self._waiting.add(name)
            else:
                self._waiting.discard(name)


def _is_waiting(name: str, server: Mapping[str, Any]) -> bool:
    return name.startswith(NAME_PREFIX) and (server.get("spec") or {}).get("acceptance") == "Pending"
