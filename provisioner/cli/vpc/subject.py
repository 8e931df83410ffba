"""Everything that `vpc why` tells of: one attachment with what concerns it, as far as the asker may read it.

A tenant reads what is in its namespace. Servers, DPUs, claims and what DPUs are told are the administrators' to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import ip_address
from typing import TypeVar

from provisioner.api import VPC, DPUNetwork, NetworkClaim, SecurityGroup, Server, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import Forbidden
from provisioner.api.machinery.meta import Resource
from provisioner.api.network.network_claim import address_claim, port_claim
from provisioner.cli.kubectl.connection import find_named
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from provisioner.network.control.compile.place import FunctionPlace, place
from provisioner.network.control.compile.security import groups_of
from provisioner.network.control.compile.trouble import Trouble

R = TypeVar("R", bound=Resource)
T = TypeVar("T")


@dataclass(frozen=True)
class Hidden:
    """What the asker may not read: a plural, for a sentence."""

    what: str


@dataclass(frozen=True, kw_only=True)
class AttachmentSubject:
    """An attachment. vpc: None if there is none. groups: those that it and its VPC name, as far as they are there.
    claims: by name, of its function and its addresses, whoever holds them."""

    attachment: VPCAttachment
    vpc: VPC | None
    groups: Mapping[str, SecurityGroup]
    server: Server | Hidden | None
    dpus: tuple[Server, ...] | Hidden
    network: DPUNetwork | Hidden | None
    claims: Mapping[str, NetworkClaim] | Hidden
    now: datetime

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.attachment.metadata.namespace}/{self.attachment.name}"

    @property
    def place(self) -> FunctionPlace | Trouble | None:
        """Where it is, or why it is nowhere; None where that may not be seen."""
        if isinstance(self.server, Hidden) or isinstance(self.dpus, Hidden):
            return None
        return place(self.attachment, self.server, self.dpus)

    @property
    def dpu(self) -> str | None:
        """The DPU that enforces it, or is to."""
        at = self.place
        return at.dpu if isinstance(at, FunctionPlace) else self.attachment.status.dpu_ref

    @property
    def hidden(self) -> list[str]:
        """What of it could not be read."""
        found = (self.server, self.dpus, self.network, self.claims)
        return list(dict.fromkeys(each.what for each in found if isinstance(each, Hidden)))


def read_subject(cluster: Cluster, attachment: VPCAttachment, now: datetime) -> AttachmentSubject:
    """A number of requests that does not grow with the fleet. Raises: Refused where the namespace may not be read."""
    namespace, spec = attachment.metadata.namespace, attachment.spec
    vpc = find(cluster, VPC, spec.vpc_ref, namespace=namespace)
    groups = read_groups(cluster, vpc, attachment)
    server = unless_hidden("Servers", lambda: find(cluster, Server, spec.server_ref))
    dpus = unless_hidden("Servers", lambda: _dpus_of(cluster, spec.server_ref))
    bare = AttachmentSubject(
        attachment=attachment, vpc=vpc, groups=groups, server=server, dpus=dpus, network=None, claims={}, now=now
    )
    dpu = bare.dpu
    network = unless_hidden("DPUNetworks", lambda: find(cluster, DPUNetwork, dpu) if dpu is not None else None)
    names = claims_asked(attachment, vpc, dpu)
    claims = unless_hidden("NetworkClaims", lambda: _claims(cluster, names))
    return replace(bare, network=network, claims=claims)


def claims_asked(attachment: VPCAttachment, vpc: VPC | None, dpu: str | None) -> list[str]:
    """Names of the claims of its function, and of the addresses that it has or wishes. Pure."""
    vni = vpc.status.vni if vpc is not None else None
    addresses = dict.fromkeys((*attachment.spec.addresses, *attachment.status.addresses)) if vni is not None else ()
    ports = [port_claim(dpu, attachment.spec.function)] if dpu is not None else []
    return [*ports, *(address_claim(vni or 0, ip_address(each)) for each in addresses)]


def read_groups(cluster: Cluster, vpc: VPC | None, attachment: VPCAttachment) -> dict[str, SecurityGroup]:
    """Those that an attachment and its VPC name, as far as they are there."""
    if vpc is None:
        return {}
    namespace = attachment.metadata.namespace
    found = {name: find(cluster, SecurityGroup, name, namespace=namespace) for name in groups_of(vpc, attachment)}
    return {name: group for name, group in found.items() if group is not None}


def find(cluster: Cluster, kind: type[R], name: str, *, namespace: str | None = None) -> R | None:
    """The object of that name; None if there is none, or if it is being deleted."""
    found = find_named(cluster, kind, name, namespace=namespace)
    return found if found is not None and found.metadata.deletion_timestamp is None else None


def unless_hidden(what: str, read: Callable[[], T]) -> T | Hidden:
    """What `read` gives; Hidden where the asker lacks the right."""
    try:
        return read()
    except Forbidden:
        return Hidden(what)


def _dpus_of(cluster: Cluster, server: str) -> tuple[Server, ...]:
    found = cluster.list(of(Server), field_selector=f"spec.dpu.hostRef={server}").items
    return tuple(decode(Server, body) for body in found)


def _claims(cluster: Cluster, names: Iterable[str]) -> dict[str, NetworkClaim]:
    found = {name: find(cluster, NetworkClaim, name) for name in names}
    return {name: claim for name, claim in found.items() if claim is not None}
