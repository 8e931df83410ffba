"""Finds a server's machine among Nodes of other names: it may run since before it was registered. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from provisioner.api import Server
from provisioner.api.values import system_uuid_spellings


def find_other_node(
    server: Server, nodes: Iterable[Mapping[str, Any]], is_alive: Callable[[Mapping[str, Any]], bool]
) -> str | None:
    """The name of a living Node that has the server's system UUID or its address, but not its name."""
    uuids = system_uuid_spellings(server.spec.system_uuid) if server.spec.system_uuid else frozenset()
    for node in nodes:
        name = str(node["metadata"]["name"])
        if name != server.name and _is_machine(node, uuids, server.status.address) and is_alive(node):
            return name
    return None


def _is_machine(node: Mapping[str, Any], uuids: frozenset[str], address: str | None) -> bool:
    status = node.get("status") or {}
    if str((status.get("nodeInfo") or {}).get("systemUUID") or "").lower() in uuids:
        return True
    addresses = (a.get("address") for a in status.get("addresses") or () if a.get("type") == "InternalIP")
    return address is not None and address in addresses
