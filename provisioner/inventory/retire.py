"""A rack leaves: what keeps it, what is deleted with it and in which order, and what it looks like elsewhere. Pure.

A server goes last of what belongs to it, and the rack last of all: whoever is interrupted finds the rest by the same
way. docs/retire-and-move.md has the commands before and after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.api import AddressBlock, Maintenance, Rack, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.nodes.maintenance import FINAL_PHASES


@dataclass(frozen=True)
class RackContents:
    """A rack and what has to do with it. `others`: Servers of other racks. `nodes`: names of all Nodes. `attached`:
    VPCAttachments as arguments of kubectl, by server. `ready`: names of the Nodes whose kubelet was heard lately."""

    rack: Rack
    servers: tuple[Server, ...]
    others: tuple[Server, ...]
    maintenances: tuple[Maintenance, ...]
    nodes: frozenset[str]
    attached: Mapping[str, str]
    ready: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Deletion:
    """One object to delete. `server`: to which it belongs; none for the rack itself."""

    kind: str
    name: str
    server: str | None = None


def obstacles(found: RackContents) -> list[str]:
    """What keeps the rack from going, one line for each server and reason; each with its remedy."""
    lines = []
    for server in found.servers:
        name, power = server.name, server.status.power
        if server.spec.acceptance == "Accepted" and server.spec.power_state != "Off":
            lines.append(
                f"{name} is to be on; drain it, then: kubectl patch server {name} --type=merge "
                '-p \'{"spec":{"powerState":"Off"}}\''
            )
        elif server.spec.bmc is not None and power is not None and power.state != "Off":
            lines.append(f"{name} is not off: its power is {power.state}; kubectl provision why {name}")
        elif name in found.ready and (server.spec.bmc is None or power is None):
            lines.append(f"{name} is not off: nobody tells its power, and its Node is Ready; drain it, switch it off")
        if name in found.attached:
            lines.append(f"{name} is attached to a tenant's network: delete vpcattachment {found.attached[name]}")
        for maintenance in found.maintenances:
            if maintenance.spec.server_ref == name and maintenance.status.phase not in FINAL_PHASES:
                phase = maintenance.status.phase or "new"
                lines.append(f"{name} has Maintenance {maintenance.name} ({phase}); kubectl provision why {name}")
    return lines


def deletions(found: RackContents) -> list[Deletion]:
    """What goes, in its order. A Secret that a server elsewhere names stays."""
    named_elsewhere = {_secret_of(server) for server in found.others}
    steps: list[Deletion] = []
    gone: set[str] = set()
    for number, server in enumerate(found.servers):
        name, secret = server.name, _secret_of(server)
        records = [m.name for m in found.maintenances if m.spec.server_ref == name]
        steps += [Deletion("Maintenance", record, name) for record in records]
        if name in found.nodes:
            steps.append(Deletion("Node", name, name))
        later = {_secret_of(other) for other in found.servers[number + 1 :]}
        if secret is not None and secret not in named_elsewhere | later | gone:
            gone.add(secret)
            steps.append(Deletion("Secret", secret, name))
        steps.append(Deletion("Server", name, name))
    return [*steps, Deletion("Rack", found.rack.name)]


def claims_of(servers: Iterable[str], blocks: Iterable[AddressBlock]) -> list[str]:
    """Addresses that these servers have claimed; the inventory controller takes such claims back."""
    names = set(servers)
    return sorted(
        f"{address} of {holder}" for block in blocks for address, holder in block.spec.claims.items() if holder in names
    )


def portable(found: RackContents) -> list[dict[str, Any]]:
    """The rack and its servers as another cluster takes them: what was wanted, nothing of what was observed.

    Addresses are pinned, so that each server keeps its own. Servers are Pending: they boot there once they are
    accepted, which is when this cluster has let go of them.
    """
    kept = [_without_status(encode(found.rack))]
    for server in found.servers:
        body = _without_status(encode(server))
        if server.status.address is not None:
            body["spec"]["bootAddress"] = server.status.address
        kept.append(body | {"spec": {**body["spec"], "acceptance": "Pending", "powerState": "On"}})
    return kept


def _without_status(body: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: body["metadata"][key] for key in ("name", "labels", "annotations") if body["metadata"].get(key)}
    named = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": metadata}
    return {**named, "spec": body["spec"]}


def _secret_of(server: Server) -> str | None:
    return server.spec.bmc.credentials_name if server.spec.bmc is not None else None
