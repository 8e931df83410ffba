"""Finds a server's machine among Nodes of other names: it may run since before it was registered."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from provisioner.api import Server
from provisioner.api.values import normal_system_uuid
from provisioner.cluster.source import Lookup


def find_other_node(server: Server, nodes: Lookup, is_alive: Callable[[Mapping[str, Any]], bool]) -> str | None:
    """The name of a living Node that has the server's system UUID or its address, but not its name.

    `nodes` are indexed by `machine_keys`.
    """
    keys: list[Hashable] = []
    keys += [("uuid", normal_system_uuid(server.spec.system_uuid))] if server.spec.system_uuid else []
    keys += [("address", server.status.address)] if server.status.address is not None else []
    found = {node["metadata"]["name"]: node for key in keys for node in nodes.get(key)}
    return next((name for name, node in sorted(found.items()) if name != server.name and is_alive(node)), None)


def machine_keys(node: Mapping[str, Any]) -> Iterable[Hashable]:
    """What tells a Node's machine: its system UUID, its internal addresses."""
    status = node.get("status") or {}
    yield "uuid", normal_system_uuid(str((status.get("nodeInfo") or {}).get("systemUUID") or ""))
    yield from (("address", a.get("address")) for a in status.get("addresses") or () if a.get("type") == "InternalIP")
