"""Servers by MAC address, by indices of an informer's cache."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from provisioner.api import Server
from provisioner.api.machinery.codec import decode
from provisioner.api.servers.discovery import RackPlace, is_waiting, place_of
from provisioner.cluster.source import Object, Source
from provisioner.rules.dpus import carries_boot_of, hosts
from provisioner.rules.identity import boot_mac, find_server, macs_of


class ServerIndex:
    """Which Server has a MAC address, and how many unknown machines wait."""

    def __init__(self, servers: Source) -> None:
        self.servers = servers
        self._by_mac = servers.index(macs_of)
        self._by_address = servers.index(_addresses_of)
        self._dpus = servers.index(hosts)
        self._lock = threading.Lock()
        self._waiting: dict[str, RackPlace] = {}
        self._waiting_in = Counter[RackPlace]()

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

    def holds(self, address: str) -> bool:
        """Whether a Server has this address."""
        return bool(self._by_address.get(address))

    def is_carried_by(self, address: str, mac: str) -> bool:
        """Whether the Server that boots from `mac` does so by a DPU that has this address.

        Raises: ProvisionerError of a Server that cannot be read.
        """
        found = self.booting_from(mac)
        if found is None:
            return False
        carriers = (decode(Server, each) for each in self._dpus.get(found["metadata"]["name"]))
        server = decode(Server, found)
        return any(each.status.address == address and carries_boot_of(each, server) for each in carriers)

    def count_waiting(self, place: RackPlace) -> tuple[int, int]:
        """How many unknown machines wait for a person, there and in all: kept, not counted, since any stranger may
        ask."""
        with self._lock:
            return self._waiting_in[place], len(self._waiting)

    @property
    def waiting(self) -> int:
        """How many unknown machines wait for a person."""
        with self._lock:
            return len(self._waiting)

    def _changed(self, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        with self._lock:
            before = self._waiting.pop(name, None)
            if before is not None:
                self._waiting_in[before] -= 1
            if new is not None and is_waiting(new):
                place = place_of(new)
                self._waiting[name] = place
                self._waiting_in[place] += 1


def _addresses_of(server: Mapping[str, Any]) -> list[str]:
    address = (server.get("status") or {}).get("address")
    return [address] if address is not None else []
