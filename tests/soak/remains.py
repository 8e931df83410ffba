"""What must be true of a fleet once nothing goes wrong any more. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.demo.show import is_ready, what_is_missing
from provisioner.api import Maintenance, Server
from provisioner.api.machinery.codec import decode
from provisioner.api.nodes.contract import (
    MAINTENANCE_CONDITIONS,
    REQUEST_CONDITIONS,
    REQUEST_REFUSED,
    read_boot_id,
)
from provisioner.api.nodes.maintenance import FINAL_PHASES

Object = Mapping[str, Any]
OURS = "provisioner.dev/"


@dataclass(frozen=True)
class Remains:
    """Everything that the API server has, as it answers."""

    servers: Sequence[Object] = field(default_factory=tuple)
    nodes: Sequence[Object] = field(default_factory=tuple)
    maintenances: Sequence[Object] = field(default_factory=tuple)
    tokens: Sequence[Object] = field(default_factory=tuple)
    requests: Sequence[Object] = field(default_factory=tuple)
    """CertificateSigningRequests."""
    others: Sequence[Object] = field(default_factory=tuple)
    """NodePools, Racks, Images, AddressBlocks."""


def what_is_wrong(remains: Remains, expected: Collection[str]) -> list[str]:
    """Every rule that is broken, in words; nothing if the fleet is as if nothing had gone wrong.

    `expected`: the servers, all of which are to be Ready nodes, and no others.
    """
    return [
        *_servers(remains, expected),
        *_nodes(remains, expected),
        *_maintenances(remains),
        *_left_over(remains),
    ]


def _servers(remains: Remains, expected: Collection[str]) -> Iterator[str]:
    servers = {_name(body): decode(Server, dict(body)) for body in remains.servers}
    for name in sorted(set(servers) ^ set(expected)):
        yield f"Server {name} {'is gone' if name in expected else 'should not be there'}"
    for name in sorted(set(servers) & set(expected)):
        if not is_ready(servers[name]):
            yield f"Server {name} is not in production: {what_is_missing(servers[name])}"


def _nodes(remains: Remains, expected: Collection[str]) -> Iterator[str]:
    nodes = {_name(body): body for body in remains.nodes}
    servers = {_name(body): decode(Server, dict(body)) for body in remains.servers}
    for name in sorted(set(nodes) ^ set(expected)):
        yield f"Node {name} {'is gone' if name in expected else 'should not be there'}"
    for name in sorted(set(nodes) & set(expected)):
        node = nodes[name]
        conditions = {each["type"]: each["status"] for each in (node.get("status") or {}).get("conditions") or ()}
        if conditions.get("Ready") != "True":
            yield f"Node {name} is not Ready: {conditions.get('Ready')}"
        for type_ in (*MAINTENANCE_CONDITIONS, *REQUEST_CONDITIONS, REQUEST_REFUSED):
            if conditions.get(type_) == "True":
                yield f"Node {name} still has {type_}"
        for taint in (node.get("spec") or {}).get("taints") or ():
            yield f"Node {name} still has the taint {taint['key']}:{taint['effect']}"
        if (node.get("spec") or {}).get("unschedulable"):
            yield f"Node {name} is cordoned"
        server = servers.get(name)
        if server is not None:
            if read_boot_id(node) != server.status.boot_id:
                yield f"Node {name} runs boot {read_boot_id(node)}, its Server says {server.status.boot_id}"
            if node["metadata"]["uid"] != server.status.node_uid:
                yield f"Node {name} is {node['metadata']['uid']}, its Server says {server.status.node_uid}"


def _maintenances(remains: Remains) -> Iterator[str]:
    for body in remains.maintenances:
        maintenance = decode(Maintenance, dict(body))
        if maintenance.status.phase not in FINAL_PHASES:
            yield f"Maintenance {maintenance.name} is still {maintenance.status.phase or 'not looked at'}"


def _left_over(remains: Remains) -> Iterator[str]:
    for token in remains.tokens:
        yield f"token {_name(token)} is still there"
    for request in remains.requests:
        if not (request.get("status") or {}).get("conditions"):
            yield f"certificate request {_name(request)} of {request['spec'].get('username')} was not decided"
    everything = (*remains.servers, *remains.nodes, *remains.maintenances, *remains.others)
    for body in everything:
        if body["metadata"].get("deletionTimestamp"):
            kept = ", ".join(body["metadata"].get("finalizers") or ()) or "nothing"
            yield f"{body.get('kind')} {_name(body)} is being deleted, kept by {kept}"


def _name(body: Object) -> str:
    return str(body["metadata"]["name"])
