"""A rack of a test, with the inventory controllers at work on a real API server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from provisioner.api import AddressBlock, Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.conditions import find_condition
from provisioner.cluster.resources import of
from tests.api.objects import rack, server, subnet

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster

GENEROUS_SECONDS = 180.0


def eventually(check: Callable[[], Any], what: str) -> Any:
    """Wait until `check` gives something true; what it gives."""
    deadline = time.monotonic() + GENEROUS_SECONDS
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.05)
    pytest.fail(f"did not happen within {GENEROUS_SECONDS} s: {what}")


class Site:
    """A rack of this test, with a subnet and MAC addresses of its own."""

    def __init__(self, cluster: Cluster, unique: str) -> None:
        self.cluster, self.name = cluster, unique
        self._octets = f"{int(unique[1:3], 16)}.{int(unique[3:5], 16)}"
        self._mac = ":".join(["52", *(unique[1:][i : i + 2] for i in (0, 2, 4, 6))])

    def address(self, host: int) -> str:
        return f"10.{self._octets}.{host}"

    def mac(self, number: int) -> str:
        return f"{self._mac}:{number:02x}"

    def add_rack(self, **changes: Any) -> None:
        fields = {"cidr": f"10.{self._octets}.0/24", "gateway": self.address(1)} | changes
        self.cluster.apply(rack(self.name, subnets=[subnet(**fields)]), manager="tests")

    def add(self, number: int, **changes: Any) -> str:
        name = f"{self.name}-u{number:02d}"
        spec = {"rackRef": self.name, "bootMACAddress": self.mac(number), "acceptance": "Accepted"} | changes
        self.cluster.apply(server(name, **spec), manager="tests")
        return name

    def claims(self) -> dict[str, str]:
        """Who has claimed which address of the rack; nobody has while there is no AddressBlock."""
        block = self.cluster.find(of(AddressBlock), self.address(0))
        return decode(AddressBlock, block).spec.claims if block is not None else {}

    def accepted(self, name: str) -> tuple[str, str, str | None] | None:
        """Status and reason of Accepted, and the address."""
        status = self.cluster.read(Server, name).status
        found = find_condition(status.conditions, "Accepted")
        return (found.status, found.reason, status.address) if found else None

    def becomes(self, name: str, *wanted: str | None) -> None:
        eventually(lambda: self.accepted(name) == wanted, f"{name} {wanted}; it is {self.accepted(name)}")
