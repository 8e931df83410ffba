"""Acceptance: what `provisioner accept` changes on a server, and what it refuses. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api import NodePool, Rack, Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import normal_system_uuid
from provisioner.api.servers.discovery import is_discovered
from provisioner.inventory.addresses.subnets import choose_subnet
from provisioner.inventory.register import FieldChange
from provisioner.rules.assigned_image import released_image


@dataclass(frozen=True)
class AcceptOptions:
    """What the command line asks for beside acceptance itself; None leaves a field as it is."""

    pool: str | None = None
    rack: str | None = None
    position: str | None = None
    subnet: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Acceptance:
    """What accepting a server does."""

    server: str
    name: str
    """The server's name afterwards: another one if it is renamed."""
    changes: tuple[FieldChange, ...]
    spec: Mapping[str, Any]
    """The fields that change, for a merge patch; the whole spec if the server is renamed."""
    next_step: str

    @property
    def renamed(self) -> bool:
        return self.name != self.server


def decide_acceptance(
    server: Server,
    wish: AcceptOptions,
    *,
    racks: Collection[Rack],
    pools: Collection[NodePool],
    servers: Iterable[Server],
) -> Acceptance:
    """What to change so that `server` may boot. Raises: Refused with the remedy if it cannot."""
    rack = _named("Rack", wish.rack or server.spec.rack_ref, racks)
    if rack is None:
        raise Refused(
            f"Server {server.name} not accepted: it is in no rack, and so in no subnet",
            hint=f"give --rack NAME{_known(racks)}",
        )
    pool = _named("NodePool", wish.pool or server.spec.node_pool_ref, pools)
    subnet_name = wish.subnet or (None if wish.rack and wish.rack != server.spec.rack_ref else server.spec.subnet_name)
    if choose_subnet(rack, subnet_name) is None:
        known = ", ".join(subnet.name for subnet in rack.spec.subnets)
        raise Refused(
            f"Server {server.name} not accepted: rack {rack.name} has no subnet {subnet_name}",
            hint=f"give --subnet with one of {known}",
        )
    wanted: dict[str, Any] = {
        "rackRef": rack.name,
        "subnetName": subnet_name,
        "nodePoolRef": pool.name if pool else None,
        "position": wish.position or server.spec.position,
        **_vouched(server, servers),
        "acceptance": "Accepted",
    }
    before = to_json(server.spec)
    changes = [FieldChange(key, before.get(key), value) for key, value in wanted.items() if before.get(key) != value]
    name = wish.name or server.name
    if name != server.name:
        if not is_discovered(server):
            raise Refused(
                f"Server {server.name} not renamed: only discovered machines get another name when they are accepted",
                hint="leave --name out",
            )
        spec = {key: value for key, value in {**before, **wanted}.items() if value is not None}
        changes.insert(0, FieldChange("metadata.name", server.name, name))
    else:
        spec = {change.field: change.after for change in changes}
    return Acceptance(server.name, name, tuple(changes), spec, _next_step(server, name, pool))


def _named(kind: str, name: str | None, known: Collection[Any]) -> Any:
    found = next((resource for resource in known if resource.name == name), None)
    if name is not None and found is None:
        option = "--rack" if kind == "Rack" else "--pool"
        raise Refused(f"{kind} {name} does not exist", hint=f"create it, or give {option} NAME{_known(known)}")
    return found


def _known(resources: Collection[Any]) -> str:
    names = sorted(resource.name for resource in resources)
    return f" (there is {', '.join(names)})" if names else " (there is none yet)"


_NORMAL: Final[dict[str, Callable[[str], str]]] = {"serialNumber": str.upper, "systemUUID": normal_system_uuid}


def _vouched(server: Server, servers: Iterable[Server]) -> dict[str, str]:
    """Serial number and UUID that the machine claimed: who accepts it vouches for them, so they go into the spec."""
    discovery = server.status.discovery
    claimed = {
        "serialNumber": server.spec.serial_number or (discovery.serial_number if discovery else None),
        "systemUUID": server.spec.system_uuid or (discovery.system_uuid if discovery else None),
    }
    for other in servers:
        taken = {"serialNumber": other.spec.serial_number, "systemUUID": other.spec.system_uuid}
        both = {key: (value, taken[key]) for key, value in claimed.items() if other.name != server.name}
        same = [key for key, (a, b) in both.items() if a and b and _NORMAL[key](a) == _NORMAL[key](b)]
        if same:
            raise Refused(
                f"Server {server.name} not accepted: it claims the {same[0]} {claimed[same[0]]} of Server "
                f"{other.name}, whose boot MAC address is {other.spec.boot_mac_address}",
                hint=f"if an interface of {other.name} was replaced, give {other.name} the MAC address "
                f"{server.spec.boot_mac_address} and delete {server.name}; else reject {server.name}",
            )
    return {key: value for key, value in claimed.items() if value}


def _next_step(server: Server, name: str, pool: NodePool | None) -> str:
    if pool is None:
        return f"{name} waits for a NodePool: provisioner accept {name} --pool NAME"
    if server.spec.acceptance == "Accepted" and server.status.order is not None and name == server.name:
        return f"{name} was accepted before, so no boot is ordered; what it does: kubectl provision why {name}"
    boots = f"boots image {released_image(pool).name} and becomes a Node of pool {pool.name}"
    if is_discovered(server):
        return f"{name} {boots} the next time it asks, within a minute if it waits at its console message"
    if server.spec.bmc is None:
        return f"{name} {boots} when somebody switches it on: it has no BMC"
    return f"{name} {boots}: its BMC is told to start it"
