"""A VPC as it is compiled: its attachments where they are, with all that they were given. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, ip_address, ip_network

from provisioner.api import VPC, SecurityGroup, VPCAttachment
from provisioner.api.network.dpu_network import DPUPort, RemotePrefixes
from provisioner.api.network.vpc_attachment import ForwardingState
from provisioner.network.control.compile.allocate import gateway_of
from provisioner.network.control.compile.peers import key_of
from provisioner.network.control.compile.place import FunctionPlace
from provisioner.network.control.compile.security import group_trouble, groups_of, rules_of
from provisioner.network.control.compile.trouble import Trouble


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An attachment that has its place, addresses and port. hosts: its addresses as prefixes. prefixes: what the VPC's
    routes reach by it."""

    attachment: str
    place: FunctionPlace
    addresses: tuple[str, ...]
    hosts: tuple[str, ...]
    prefixes: tuple[str, ...]
    state: ForwardingState
    groups: tuple[SecurityGroup, ...]

    @property
    def forwards(self) -> bool:
        return self.state == "Tenant"


@dataclass(frozen=True, kw_only=True)
class VPCView:
    """peers: those with which packets are exchanged, by key, in the order in which the VPC names them. kept: what was
    made of it together with peers."""

    key: str
    vni: int
    mtu_bytes: int
    cidrs: tuple[str, ...]
    routes: tuple[str, ...]
    peers: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    kept: dict[tuple[int, ...], Kept] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def by_attachment(self) -> dict[str, Endpoint]:
        return {each.attachment: each for each in self.endpoints}

    @cached_property
    def _by_dpu(self) -> dict[str, list[Endpoint]]:
        found: dict[str, list[Endpoint]] = {}
        for each in self.endpoints:
            found.setdefault(each.place.dpu, []).append(each)
        return found

    @cached_property
    def forwarding(self) -> list[Endpoint]:
        return [each for each in self.endpoints if each.forwards]

    @cached_property
    def members(self) -> list[tuple[str, str]]:
        """The DPUs from which its packets come: name and address on the underlay, sorted by that."""
        found = {(each.place.dpu, each.place.vtep) for each in self.forwarding}
        return sorted(found, key=lambda each: IPv4Address(each[1]))

    @property
    def dpus(self) -> int:
        """How many DPUs its packets come from."""
        return len(self.members)

    @cached_property
    def reach_bytes(self) -> int:
        """About how many bytes it takes to tell of all that is reached in it."""
        prefixes = sum(len(each) + 3 for one in self.forwarding for each in (*one.hosts, *one.prefixes))
        return prefixes + 48 * self.dpus

    def here(self, dpu: str) -> list[Endpoint]:
        return self._by_dpu.get(dpu, [])

    def forwards_on(self, dpu: str) -> bool:
        return any(each.forwards for each in self.here(dpu))


def make_endpoint(
    vpc: VPC,
    attachment: VPCAttachment,
    at: FunctionPlace,
    addresses: tuple[str, ...],
    groups: Mapping[str, SecurityGroup],
) -> Endpoint:
    """`groups`: those of the namespace that are there."""
    names = groups_of(vpc, attachment)
    routed = (route.destination for route in vpc.spec.routes if route.next_hop in addresses)
    return Endpoint(
        attachment=f"{vpc.metadata.namespace}/{attachment.name}",
        place=at,
        addresses=addresses,
        hosts=tuple(str(ip_network(each)) for each in addresses),
        prefixes=tuple(sorted(routed, key=prefix_order)),
        state="Quarantined" if at.is_quarantined else forwarding_state(vpc, attachment, groups),
        groups=tuple(groups[each] for each in names) if all(each in groups for each in names) else (),
    )


def forwarding_state(vpc: VPC, attachment: VPCAttachment, groups: Mapping[str, SecurityGroup]) -> ForwardingState:
    """What is to become of the packets of an attachment that has its place and addresses, as far as its tenant says:
    its administrators may have quarantined the place."""
    if attachment.spec.quarantined:
        return "Quarantined"
    return "Isolated" if group_trouble(vpc, attachment, groups) is not None else "Tenant"


def make_view(vpc: VPC, vni: int, peers: Sequence[VPC], endpoints: Sequence[Endpoint]) -> VPCView:
    """A route that would take the address of an attachment away leads nowhere."""
    hosts = {host for each in endpoints for host in each.hosts}
    kept = (
        replace(each, prefixes=tuple(prefix for prefix in each.prefixes if prefix not in hosts)) for each in endpoints
    )
    return VPCView(
        key=key_of(vpc),
        vni=vni,
        mtu_bytes=vpc.spec.mtu_bytes,
        cidrs=vpc.spec.cidrs,
        routes=tuple(each.destination for each in vpc.spec.routes),
        peers=tuple(key_of(each) for each in peers),
        endpoints=tuple(sorted(kept, key=lambda each: (each.place.dpu, each.place.function))),
    )


def port_of(endpoint: Endpoint, vni: int) -> DPUPort:
    """What its DPU is told of it."""
    return DPUPort(
        function=endpoint.place.function,
        vni=vni,
        state=endpoint.state,
        mac_address=endpoint.place.mac_address,
        addresses=endpoint.addresses,
        gateways=tuple(str(gateway_of(ip_address(each))) for each in endpoint.addresses),
        prefixes=endpoint.prefixes,
        rules=rules_of(endpoint.groups) if endpoint.forwards else (),
    )


def route_trouble(vpc: VPC, addresses: Iterable[str]) -> Trouble | None:
    """Why the first of the VPC's routes leads nowhere. `addresses`: those of its attachments."""
    given = set(addresses)
    hosts = {str(ip_network(each)) for each in given}
    for route in vpc.spec.routes:
        if route.next_hop not in given:
            return Trouble(
                reason="RouteWithoutAttachment",
                message=f"route {route.destination} of VPC '{key_of(vpc)}' has nextHop {route.next_hop}, which no "
                "attachment of the VPC has: name the address of one (status.addresses), or take the route out",
            )
        if route.destination in hosts:
            return Trouble(
                reason="RouteTakesAddress",
                message=f"route {route.destination} of VPC '{key_of(vpc)}' is the address of an attachment, which "
                "keeps it: take the route out",
            )
    return None


@lru_cache(maxsize=65536)
def prefix_order(prefix: str) -> tuple[int, int, int]:
    """By which prefixes are sorted: family, address, length."""
    subnet = ip_network(prefix)
    return subnet.version, int(subnet.network_address), subnet.prefixlen


Kept = tuple[tuple[VPCView, ...], list[tuple[str, RemotePrefixes]]]
"""With which peers, and what is reached behind which DPU."""
