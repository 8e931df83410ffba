"""Which Server a MAC address is. Pure.

The API server cannot forbid that several Servers name one. Then one of them has it, whoever asks: the inventory calls
the others duplicates; the boot service, DHCP and the join look at that one alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from provisioner.api.servers.server import Server
from provisioner.cluster.source import spec_of

Json = Mapping[str, Any]
S = TypeVar("S", Server, dict[str, Any])


def precedence(server: Server | Json) -> tuple[bool, str, str]:
    """Of several Servers that claim the same, the one with the least has it: the accepted one, then the oldest, then by
    name. What a person has accepted is not taken away by what a stranger, or a packing list, names later."""
    if isinstance(server, Server):
        return server.spec.acceptance != "Accepted", server.metadata.creation_timestamp or "", server.name
    metadata = server["metadata"]
    return spec_of(server).get("acceptance") != "Accepted", metadata.get("creationTimestamp") or "", metadata["name"]


def find_server(mac: str, claimants: Iterable[S]) -> S | None:
    """The Server that boots from `mac`; where none does, the one that lists it among its further interfaces."""
    having = [server for server in claimants if mac in macs_of(server)]
    return min(having, key=lambda server: (mac != macs_of(server)[0], precedence(server)), default=None)


def macs_of(server: Server | Json) -> tuple[str, ...]:
    """The MAC addresses of a Server, as they are written; the first is the one that it boots from."""
    if isinstance(server, Server):
        return server.spec.boot_mac_address, *(interface.mac_address for interface in server.spec.interfaces)
    interfaces = spec_of(server).get("interfaces")  # an object of a newer version may be written otherwise
    further = (each.get("macAddress") for each in interfaces or () if isinstance(each, Mapping))
    return boot_mac(server) or "", *(mac for mac in further if mac)


def boot_mac(server: Json) -> str | None:
    """spec.bootMACAddress of a Server's JSON."""
    return spec_of(server).get("bootMACAddress")
