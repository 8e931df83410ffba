"""What a reflector's bgpd shall run with, by the NetworkPool and all DPUNetworks. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from provisioner.api import DPUNetwork, NetworkPool
from provisioner.network.evpn.configuration import Configuration
from provisioner.network.evpn.reflector import ReflectorClient, reflector
from provisioner.network.evpn.speaker import Fabric


@dataclass(frozen=True)
class WantedReflector:
    """`configuration`: without a line where this reflector has nothing to do, for which `idle` is the reason, as of a
    condition. `twice`: DPUs that are left out because another one has their address."""

    configuration: Configuration
    clients: int = 0
    twice: tuple[str, ...] = ()
    idle: str | None = None


def wanted(address: str, pool: NetworkPool | None, networks: Iterable[DPUNetwork]) -> WantedReflector:
    """`address`: the reflector's own on the underlay. DPUs whose DPUNetwork does not speak of EVPN yet, or any more,
    have their sessions as well: they change over one after the other."""
    evpn = pool.spec.evpn if pool is not None else None
    if evpn is None or evpn.asn is None:
        return WantedReflector({}, idle="NotChosen")
    if address not in evpn.reflectors:
        return WantedReflector({}, idle="NotNamed")
    clients: dict[str, ReflectorClient] = {}
    twice = []
    for network in sorted(networks, key=lambda each: each.name):
        client = client_of(network)
        if client.vtep in clients or client.vtep == address:
            twice.append(network.name)
        else:
            clients[client.vtep] = client
    fabric = Fabric(asn=evpn.asn, reflectors=evpn.reflectors)
    return WantedReflector(reflector(address, fabric, clients.values()), len(clients), tuple(twice))


def client_of(network: DPUNetwork) -> ReflectorClient:
    """It says what is in VPCs of which a port passes on it, and is told of those and of their peers."""
    spec = network.spec
    sends = frozenset(port.vni for port in spec.ports if port.state == "Tenant")
    takes = frozenset(vpc.vni for vpc in spec.vpcs if vpc.vni in sends or vpc.peer_vnis)
    return ReflectorClient(spec.vtep_address, sends & {vpc.vni for vpc in spec.vpcs}, takes)
