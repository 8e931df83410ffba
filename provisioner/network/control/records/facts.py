"""What is decided on, read from the caches: places, claims that count, and VPCs as they are compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from typing import TypeVar

from provisioner.api import VPC, DPUNetwork, NetworkClaim, NetworkPool, SecurityGroup, Server, VPCAttachment
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.machinery.meta import Resource
from provisioner.api.network.card import CardConfiguration
from provisioner.api.network.dpu_network import DPUEvpn, HostBoot
from provisioner.api.network.network_claim import address_claim
from provisioner.api.network.network_pool import THE_POOL
from provisioner.cluster.source import Object, Source, look_up
from provisioner.network.control.compile.allocate import versions_of
from provisioner.network.control.compile.peers import peers_of
from provisioner.network.control.compile.place import FunctionPlace, mac_address_of, place
from provisioner.network.control.compile.trouble import Trouble
from provisioner.network.control.compile.view import Endpoint, VPCView, make_endpoint, make_view
from provisioner.network.control.records.informers import Lookups, NetworkInformers, holder_of, is_released, vpc_of
from provisioner.network.control.records.views import Views
from provisioner.rules.dpus import carries_boot_of

# What a DPU's agent is to bring its card to, as that is told of it. Pure.


def host_boot(dpu: Server, host: Server | None) -> HostBoot | None:
    """None where the host boots by itself, was not accepted, has no address, or boots by none of the card's functions.

    `host`: the server in which the card says it is.
    """
    if host is None or host.status.address is None or host.spec.acceptance != "Accepted":
        return None
    if not carries_boot_of(dpu, host):
        return None
    functions = {"pf0", *(each.name for each in (dpu.spec.dpu.functions if dpu.spec.dpu is not None else ()))}
    boots_by = [each for each in sorted(functions) if mac_address_of(dpu, host, each) == host.spec.boot_mac_address]
    if not boots_by:
        return None
    return HostBoot(
        server=host.name,
        function=boots_by[0],
        mac_address=host.spec.boot_mac_address,
        address=host.status.address,
    )


def card_configuration(dpu: Server) -> CardConfiguration | None:
    """None where nothing is declared, or nobody has accepted the card: it stays as it is."""
    card = dpu.spec.dpu
    if card is None or not _is_ours(dpu):
        return None
    if card.host_access is None and not card.settings:
        return None
    return CardConfiguration(
        server=card.host_ref,
        host_access=card.host_access,
        settings=tuple(sorted(card.settings, key=lambda each: each.name)),
    )


def _is_ours(dpu: Server) -> bool:
    """Whether somebody has accepted the card, and nobody takes it out."""
    return dpu.spec.acceptance == "Accepted" and dpu.metadata.deletion_timestamp is None


R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, kw_only=True)
class Held:
    """The claims of an attachment that count. port: `dpu/function`."""

    claims: tuple[NetworkClaim, ...]

    @property
    def ports(self) -> list[str]:
        return [each.spec.value for each in self.claims if each.spec.type == "Port"]

    def addresses(self, vni: int) -> list[str]:
        """Those in the VPC that has `vni`, in the order of their names."""
        return [
            each.spec.value
            for each in self.claims
            if each.spec.type == "Address" and each.name == address_claim(vni, ip_address(each.spec.value))
        ]


class Facts:
    """Reads of caches. Views are kept until something that they are made of changes (`changed`, `claim_changed`)."""

    def __init__(self, caches: NetworkInformers) -> None:
        self.caches = caches
        self.lookups = Lookups(caches)
        self._views = Views(self._make_view)

    def changed(self, vpcs: Iterable[str]) -> None:
        """To be called after a change of what the views of `vpcs`, by key, are made of: specs, and which objects there
        are."""
        self._views.forget(vpcs)

    def claim_changed(self, claim: Object) -> None:
        """As `changed`, of a claim. Its holder may be gone."""
        kind, holder = holder_of(claim)
        if kind == "VPC":
            self._views.forget([holder])
            return
        attachment = self.caches.attachments.get(holder)
        if attachment is not None:
            self._views.forget([vpc_of(attachment)])
        self._views.forget_attachment(holder)

    def vpc(self, key: str) -> VPC | None:
        """One that is there, and not being deleted."""
        return _lasting(VPC, self.caches.vpcs, key)

    def attachment(self, key: str) -> VPCAttachment | None:
        return _lasting(VPCAttachment, self.caches.attachments, key)

    def vni_of(self, vpc: VPC) -> int | None:
        """The VNI that a VPC has claimed."""
        taken = self.vnis_of(vpc)
        return (vpc.status.vni if vpc.status.vni in taken else min(taken)) if taken else None

    def vnis_of(self, vpc: VPC) -> list[int]:
        """All of them: one who was stopped in the middle may have claimed another."""
        claims = self._counting(vpc.metadata.uid)
        return sorted(int(each.spec.value) for each in claims if each.spec.type == "VNI")

    def vni_claims(self) -> list[NetworkClaim]:
        """Those of all VPCs, those that were let go of among them."""
        return [decode_shared(NetworkClaim, each) for each in self.lookups.vni_claims.get("VNI")]

    def held_by(self, attachment: VPCAttachment) -> Held:
        return Held(claims=tuple(sorted(self._counting(attachment.metadata.uid), key=lambda each: each.name)))

    def _counting(self, uid: str | None) -> Iterator[NetworkClaim]:
        return (each for each in self.lookups.claims_of(uid) if each.status.released_time is None)

    def place_of(self, attachment: VPCAttachment) -> FunctionPlace | Trouble:
        spec = attachment.spec
        server = look_up(Server, self.caches.servers, spec.server_ref)
        bodies = self.lookups.dpus_by_host.get(spec.server_ref)
        return place(attachment, server, [decode_shared(Server, each) for each in bodies])

    def functions_assigned(self, dpu: str) -> frozenset[str]:
        """Those of a card that its administrators have named."""
        card = look_up(Server, self.caches.servers, dpu)
        return frozenset(each.name for each in card.spec.dpu.functions) if card and card.spec.dpu else frozenset()

    def host_boot_of(self, dpu: str) -> HostBoot | None:
        """The host that boots through a DPU."""
        card = look_up(Server, self.caches.servers, dpu)
        if card is None or card.spec.dpu is None:
            return None
        return host_boot(card, look_up(Server, self.caches.servers, card.spec.dpu.host_ref))

    def card_configuration_of(self, dpu: str) -> CardConfiguration | None:
        """What a DPU's card is to be brought to."""
        card = look_up(Server, self.caches.servers, dpu)
        return card_configuration(card) if card is not None else None

    def evpn(self) -> DPUEvpn | None:
        """How DPUs tell each other their routes; None where they are told by the API server."""
        pool = look_up(NetworkPool, self.caches.pools, THE_POOL)
        chosen = pool.spec.evpn if pool is not None else None
        if chosen is None or chosen.asn is None:
            return None
        return DPUEvpn(asn=chosen.asn, reflectors=tuple(sorted(set(chosen.reflectors), key=IPv4Address)))

    def rival_of(self, dpu: str, vtep: str) -> str | None:
        """Another DPU with the same address on the underlay."""
        names = sorted(str(each["metadata"]["name"]) for each in self.lookups.dpus_by_vtep.get(vtep))
        return next((name for name in names if name != dpu), None)

    def groups_in(self, namespace: str | None, names: tuple[str, ...]) -> dict[str, SecurityGroup]:
        """Those of them that are there."""
        found = {name: look_up(SecurityGroup, self.caches.groups, f"{namespace}/{name}") for name in names}
        return {name: group for name, group in found.items() if group is not None}

    def network(self, dpu: str) -> DPUNetwork | None:
        return look_up(DPUNetwork, self.caches.networks, dpu)

    def endpoint_of(self, attachment: VPCAttachment, vpc: VPC, vni: int) -> Endpoint | None:
        """None while it has no place, no port or no address."""
        at = self.place_of(attachment)
        if isinstance(at, Trouble):
            return None
        held = self.held_by(attachment)
        addresses = addresses_of(vpc, attachment, held.addresses(vni))
        if at.value not in held.ports or not addresses:
            return None
        if self.rival_of(at.dpu, at.vtep) is not None and not self._had(at, vni, addresses):
            return None
        refs = (*vpc.spec.security_group_refs, *attachment.spec.security_group_refs)
        groups = self.groups_in(attachment.metadata.namespace, refs)
        return make_endpoint(vpc, attachment, at, addresses, groups)

    def _had(self, at: FunctionPlace, vni: int, addresses: tuple[str, ...]) -> bool:
        """Whether the DPU has that port in its last configuration, by the address on the underlay that it has now."""
        network = self.network(at.dpu)
        if network is None or network.spec.vtep_address != at.vtep:
            return False
        had = next((each for each in network.spec.ports if each.function == at.function), None)
        return had is not None and (had.vni, had.addresses) == (vni, addresses)

    def view(self, key: str) -> VPCView | None:
        """The VPC as it is compiled; None if it is not there, or has no VNI."""
        return self._views.get(key)

    def _make_view(self, key: str) -> VPCView | None:
        vpc = self.vpc(key)
        vni = self.vni_of(vpc) if vpc is not None else None
        if vpc is None or vni is None:
            return None
        found = (self.endpoint_of(each, vpc, vni) for each in self.attachments_of(key))
        return make_view(vpc, vni, peers_of(vpc, self.vpc), [each for each in found if each is not None])

    def attachments_of(self, vpc: str) -> Iterator[VPCAttachment]:
        """Those of a VPC, by its key, that are not being deleted."""
        for body in self.lookups.attachments_by_vpc.get(vpc):
            attachment = decode_shared(VPCAttachment, body)
            if attachment.metadata.deletion_timestamp is None:
                yield attachment

    def views_on(self, dpu: str) -> dict[str, VPCView]:
        """The VPCs that may have ports on a DPU, and their peers."""
        found: dict[str, VPCView] = {}
        for claim in self.lookups.claims_by_dpu.get(dpu):
            attachment = self.attachment(holder_of(claim)[1])
            if attachment is None or is_released(claim):
                continue
            view = self.view(f"{attachment.metadata.namespace}/{attachment.spec.vpc_ref}")
            for key in (view.key, *view.peers) if view is not None else ():
                if (each := self.view(key)) is not None:
                    found[key] = each
        return found


def addresses_of(vpc: VPC, attachment: VPCAttachment, held: list[str]) -> tuple[str, ...]:
    """Those of the addresses that an attachment has claimed which it is to have: of each family the one it wishes, else
    the one it was given, else the first."""
    wishes, given = attachment.spec.addresses, attachment.status.addresses
    found = []
    for version in versions_of(vpc.spec.cidrs):
        wished = [each for each in wishes if ip_address(each).version == version]
        mine = [each for each in held if ip_address(each).version == version]
        mine = [each for each in mine if each in wished] or mine  # what it has stays until it has what it wishes
        if mine:
            found.append(next((each for each in mine if each in given), mine[0]))
    return tuple(found)


def _lasting(kind: type[R], source: Source, key: str) -> R | None:
    found = look_up(kind, source, key)
    return found if found is not None and found.metadata.deletion_timestamp is None else None
