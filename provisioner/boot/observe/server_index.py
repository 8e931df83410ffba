"""Servers by MAC address, kept beside an informer's cache."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from provisioner.api.discovery import NAME_PREFIX
from provisioner.cluster.source import Source

Json = Mapping[str, Any]


class ServerIndex:
    """Which Servers claim a MAC address as the one they boot from, which only have it, and how many are unknown."""

    def __init__(self, servers: Source) -> None:
        self.servers = servers
        self._lock = threading.Lock()
        self._booting: dict[str, set[str]] = {}
        self._having: dict[str, set[str]] = {}
        self._waiting: set[str] = set()

    def attach(self) -> None:
        """Follow the informer. Call once, before it starts or after: what it already has is taken over."""
        self.servers.subscribe(self._changed)
        for server in self.servers.items():
            self._changed(server["metadata"]["name"], None, server)

    def booting_from(self, mac: str) -> dict[str, Any] | None:
        """The Server that boots from `mac`.

        Where several claim it (the API server cannot forbid that), the accepted one comes first, then the oldest: every
        replica answers alike.
        """
        with self._lock:
            names = sorted(self._booting.get(mac, ()))
        claims = [server for name in names if (server := self.servers.get(name)) is not None]
        return min(claims, key=_precedence, default=None)

    def having(self, mac: str) -> dict[str, Any] | None:
        """A Server that lists `mac` among its further interfaces."""
        with self._lock:
            names = sorted(self._having.get(mac, ()))
        return next((server for name in names if (server := self.servers.get(name)) is not None), None)

    def count_waiting(self) -> int:
        """How many unknown machines wait for a person: kept, not counted, since any stranger may ask."""
        return len(self._waiting)

    def _changed(self, name: str, old: Json | None, new: Json | None) -> None:
        with self._lock:
            if new is not None and _is_waiting(name, new):
                self._waiting.add(name)
            else:
                self._waiting.discard(name)
            for server, add in ((old, False), (new, True)):
                if server is None:
                    continue
                _move(self._booting, [boot_mac(server)], name, add=add)
                _move(self._having, [i.get("macAddress") for i in _spec(server).get("interfaces", ())], name, add=add)


def boot_mac(server: Json) -> str | None:
    """spec.bootMACAddress of a Server's JSON."""
    return _spec(server).get("bootMACAddress")


def _spec(server: Json) -> dict[str, Any]:
    spec: dict[str, Any] = server.get("spec") or {}
    return spec


def _is_waiting(name: str, server: Json) -> bool:
    return name.startswith(NAME_PREFIX) and _spec(server).get("acceptance") == "Pending"


def _precedence(server: Json) -> tuple[bool, str, str]:
    metadata = server["metadata"]
    return (_spec(server).get("acceptance") != "Accepted", metadata.get("creationTimestamp", ""), metadata["name"])


def _move(index: dict[str, set[str]], macs: list[str | None], name: str, *, add: bool) -> None:
    for mac in macs:
        if mac is None:
            continue
        if add:
            index.setdefault(mac, set()).add(name)
        elif mac in index:
            index[mac].discard(name)
            if not index[mac]:
                del index[mac]
