"""Attachments in situations that a tenant, or an administrator, asks about, as the API server would tell of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from provisioner.api import VPC, DPUNetwork, NetworkClaim, SecurityGroup, Server, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.meta import rfc3339
from provisioner.cli.vpc.subject import AttachmentSubject, Hidden
from tests.network.control import objects

NOON: Final = datetime(2026, 1, 2, 12, tzinfo=UTC)
SERVER, CARD, TENANT = "r01-u01", "r01-u01-dpu", "blue"


def before(**span: float) -> str:
    return rfc3339(NOON - timedelta(**span))


def ready(status: str, reason: str, message: str, observed: int = 1) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": before(minutes=12),
        "observedGeneration": observed,
    }


def an_attachment(
    name: str = SERVER,
    *,
    status: str = "False",
    reason: str | None = "WaitsForDPU",
    message: str = "it is said why",
    generation: int = 1,
    observed: int = 1,
    told: Mapping[str, Any] | None = None,
    **spec: Any,
) -> VPCAttachment:
    """reason: None before a controller has looked at it. told: more of its status."""
    body = objects.attachment(TENANT, name, SERVER, **spec)
    body["metadata"] |= {"generation": generation, "uid": "uid-1"}
    conditions = [ready(status, reason, message, observed)] if reason is not None else []
    given = {"addresses": ["10.1.0.3"], "gateways": ["10.1.0.2"], "dpuRef": CARD, "networkGeneration": 7}
    body["status"] = {**(given if told is None else told), "conditions": conditions}
    return decode(VPCAttachment, body)


def a_vpc(**status: Any) -> VPC:
    body = objects.vpc(TENANT)
    found = {"vni": 10001, "conditions": [ready("True", "Allocated", "its VXLAN network identifier is 10001")]}
    body["status"] = found | status
    return decode(VPC, body)


def a_server(tenant: str | None = TENANT) -> Server:
    body = objects.tenants_server(SERVER, tenant or "", 1)
    if tenant is None:
        del body["spec"]["tenant"]
    return decode(Server, body)


def a_card(**spec: Any) -> Server:
    body = objects.card(CARD, SERVER, 1, **spec)
    body["spec"] = {key: value for key, value in body["spec"].items() if value is not None}
    return decode(Server, body)


def a_network(observed: int | None, *, reason: str | None = None, message: str = "", generation: int = 7) -> DPUNetwork:
    """As far as the agent has come; reason: what it says is wrong."""
    status: dict[str, Any] = {} if observed is None else {"observedGeneration": observed}
    if reason is not None:
        wrong = {"type": "Applied", "status": "False", "reason": reason, "message": message}
        status["conditions"] = [wrong | {"lastTransitionTime": before(minutes=11)}]
        status["ports"] = [{"function": "pf0", "state": "Isolated"}]
    elif observed is not None:
        right = {"type": "Applied", "status": "True", "reason": "Enforced", "message": "a dump of the kernel agrees"}
        status["conditions"] = [right | {"lastTransitionTime": before(minutes=11)}]
    metadata = {"name": CARD, "generation": generation}
    body = {"apiVersion": objects.API, "kind": "DPUNetwork", "metadata": metadata, "status": status}
    return decode(DPUNetwork, {**body, "spec": {"vtepAddress": "10.255.0.1"}})


def a_claim(
    name: str, type_: str, value: str, *, holder: str = SERVER, uid: str = "uid-1", **status: Any
) -> NetworkClaim:
    namespace, _, name_of_holder = holder.rpartition("/")
    body = objects.claim(name, type_, value, namespace or TENANT, name_of_holder)
    body["spec"]["holder"]["uid"] = uid
    return decode(NetworkClaim, {**body, "status": status})


def own_claims() -> dict[str, NetworkClaim]:
    port, address = f"port.{CARD}.pf0", "vni-10001.10.1.0.3"
    return {
        port: a_claim(port, "Port", f"{CARD}/pf0"),
        address: a_claim(address, "Address", "10.1.0.3"),
    }


def a_subject(attachment: VPCAttachment | None = None, **changes: Any) -> AttachmentSubject:
    """As an administrator sees it, all of it well but for the attachment and `changes`."""
    known: dict[str, Any] = {
        "attachment": attachment or an_attachment(),
        "vpc": a_vpc(),
        "groups": {},
        "server": a_server(),
        "dpus": (a_card(),),
        "network": a_network(7),
        "claims": own_claims(),
        "now": NOON,
    }
    return AttachmentSubject(**known | changes)


def as_a_tenant(subject: AttachmentSubject) -> AttachmentSubject:
    """The same as its tenant sees it."""
    return a_subject(
        subject.attachment,
        vpc=subject.vpc,
        groups=subject.groups,
        server=Hidden("Servers"),
        dpus=Hidden("DPUs"),
        network=Hidden("DPUNetworks"),
        claims=Hidden("NetworkClaims"),
    )


NOT_CONFIRMED = (
    f"DPU '{CARD}' has not confirmed generation 7 of its DPUNetwork, which holds this attachment; it has confirmed "
    f"generation 6, not enforced since {before(minutes=12)}"
)


def not_confirmed() -> AttachmentSubject:
    return a_subject(an_attachment(message=NOT_CONFIRMED), network=a_network(6))


def blamed() -> AttachmentSubject:
    words = "`nft` was refused: no such table; port pf0 is isolated until it succeeds"
    network = a_network(6, reason="KernelRefused", message=words)
    return a_subject(an_attachment(message=NOT_CONFIRMED), network=network)


def enforced() -> AttachmentSubject:
    words = f"DPU '{CARD}' has confirmed it"
    return a_subject(an_attachment(status="True", reason="Enforced", message=words))


def quarantined() -> AttachmentSubject:
    words = "nothing passes, as spec.quarantined asks: set it to false to let it in again"
    told = {"addresses": ["10.1.0.3"], "gateways": ["10.1.0.2"], "dpuRef": CARD, "forwardingState": "Quarantined"}
    return a_subject(an_attachment(reason="Quarantined", message=words, told=told, quarantined=True))


def without_tenant() -> AttachmentSubject:
    words = f"pf0 of Server '{SERVER}' is not assigned to namespace '{TENANT}', or there is no such Server"
    attachment = an_attachment(reason="ServerNotAssigned", message=words, told={})
    return a_subject(attachment, server=a_server(None), network=None, claims={})


def of_another_tenant() -> AttachmentSubject:
    found = without_tenant()
    return a_subject(found.attachment, server=a_server("green"), network=None, claims={})


def without_a_dpu() -> AttachmentSubject:
    words = f"Server '{SERVER}' has no DPU, and nothing else enforces a VPC"
    return a_subject(an_attachment(reason="NoDPU", message=words, told={}), dpus=(), network=None, claims={})


def pool_exhausted() -> AttachmentSubject:
    words = "VPC 'main' has no VXLAN network identifier: all of NetworkPool 'default' are in use"
    condition = ready("False", "VNIsExhausted", words)
    waits = "VPC 'main' has no VXLAN network identifier yet: its condition Ready tells why"
    attachment = an_attachment(reason="WaitsForVPC", message=waits, told={})
    return a_subject(attachment, vpc=a_vpc(vni=None, conditions=[condition]), network=a_network(7), claims={})


def waits_for_another_dpu() -> AttachmentSubject:
    """The address that it wishes was another's until now."""
    address = "vni-10001.10.1.0.9"
    claim = a_claim(
        address, "Address", "10.1.0.9", holder=f"{TENANT}/old", uid="uid-0", releasedTime=before(minutes=3),
        waitsFor=["r09-u01-dpu"],
    )  # fmt: skip
    words = "address 10.1.0.9 is not free yet: not all DPUs have confirmed yet that they know it no more"
    attachment = an_attachment(reason="AddressNotReleased", message=words, addresses=["10.1.0.9"], told={})
    port = f"port.{CARD}.pf0"
    return a_subject(attachment, claims={port: own_claims()[port], address: claim})


def unobserved() -> AttachmentSubject:
    return a_subject(an_attachment(reason=None, told={}), claims={})


def confirmed_and_not_taken_up() -> AttachmentSubject:
    return a_subject(an_attachment(message=NOT_CONFIRMED), network=a_network(7))


def lacks_a_group() -> AttachmentSubject:
    words = "there is no SecurityGroup 'web', which it names, so that nothing passes"
    attachment = an_attachment(reason="SecurityGroupNotFound", message=words, securityGroupRefs=["web", "ssh"])
    ssh = decode(SecurityGroup, objects.group(TENANT, "ssh"))
    return a_subject(attachment, groups={"ssh": ssh})


SITUATIONS: Final[Mapping[str, Callable[[], AttachmentSubject]]] = {
    "enforced": enforced,
    "quarantined": quarantined,
    "without-tenant": without_tenant,
    "of-another-tenant": of_another_tenant,
    "without-a-dpu": without_a_dpu,
    "pool-exhausted": pool_exhausted,
    "waits-for-another-dpu": waits_for_another_dpu,
    "not-confirmed": not_confirmed,
    "blamed": blamed,
    "unobserved": unobserved,
    "confirmed-and-not-taken-up": confirmed_and_not_taken_up,
    "lacks-a-group": lacks_a_group,
    "not-confirmed-as-a-tenant": lambda: as_a_tenant(not_confirmed()),
    "of-another-tenant-as-a-tenant": lambda: as_a_tenant(of_another_tenant()),
}
