"""`vpc why ATTACHMENT`: one screen about one attachment. Pure: the same objects give the same words.

blue/r01-u01 is not enforced: WaitsForDPU, since 12 min

why         DPU 'r01-u01-dpu' has not confirmed generation 7 of its DPUNetwork, which holds this attachment; …
agent       KernelRefused: …
"""

from __future__ import annotations

from collections.abc import Iterable

from provisioner.api import DPUNetwork, Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import parse_time
from provisioner.api.machinery.wording import ago
from provisioner.cli.kubectl.printing import screen
from provisioner.cli.vpc.reasons import agent_trouble, is_told_and_unseen, present_trouble
from provisioner.cli.vpc.standing import ready_of, standing_of
from provisioner.cli.vpc.subject import AttachmentSubject, Hidden
from provisioner.network.control.compile.place import tenant_of
from provisioner.network.control.compile.security import groups_of

VIEWER = "provisioner-viewer"


def render_attachment(subject: AttachmentSubject) -> str:
    """The screen; ends with a newline."""
    sections: tuple[tuple[str, Iterable[str]], ...] = (
        ("why", _why(subject)),
        ("agent", _agent(subject)),
        ("vpc", _vpc(subject)),
        ("server", _server(subject)),
        ("dpu", _dpu(subject)),
        ("addresses", _addresses(subject)),
        ("claims", _claims(subject)),
        ("groups", _groups(subject)),
        ("you can", _remedies(subject)),
        ("not seen", not_seen(subject.hidden)),
    )
    return screen(f"{subject.key} {headline(subject)}", sections)


def headline(subject: AttachmentSubject) -> str:
    """What follows the attachment's name."""
    attachment = subject.attachment
    standing, ready = standing_of(attachment), ready_of(attachment)
    if standing == "Enforced" and attachment.spec.quarantined:
        return f"is quarantined: DPU {attachment.status.dpu_ref} has confirmed that nothing passes"
    if standing == "Enforced":
        return f"is enforced: DPU {attachment.status.dpu_ref} has confirmed it"
    if ready is None:
        return "is not enforced: the controllers have not looked at it yet"
    since = ago(parse_time(ready.last_transition_time), subject.now)
    return f"is not enforced: {ready.reason}, since {since}"


def _why(subject: AttachmentSubject) -> Iterable[str]:
    if standing_of(subject.attachment) == "Enforced":
        return
    ready, present = ready_of(subject.attachment), present_trouble(subject)
    if ready is not None:
        yield ready.message
    if present is not None and (ready is None or present.reason != ready.reason):
        yield f"as things are now, {present.reason}: {present.message}"
    if is_told_and_unseen(subject):
        yield "its DPU has confirmed it, and the controllers have not taken that up yet"


def _agent(subject: AttachmentSubject) -> Iterable[str]:
    network = subject.network
    if not isinstance(network, DPUNetwork):
        return
    told, seen = network.metadata.generation, network.status.observed_generation
    yield f"has confirmed generation {seen} of {told}" if seen is not None else f"has confirmed none of {told}"
    trouble = agent_trouble(subject)
    if trouble is not None:
        yield f"{trouble.reason}: {trouble.message}"
    elif not network.status.conditions:
        yield "has never said anything: see that it runs on the DPU"
    function = subject.attachment.spec.function
    found = next((each.state for each in network.status.ports if each.function == function), None)
    if found is not None:
        yield f"says that {function} is {found}"


def _vpc(subject: AttachmentSubject) -> Iterable[str]:
    vpc = subject.vpc
    if vpc is None:
        return
    vni = f"VNI {vpc.status.vni}" if vpc.status.vni is not None else "no VNI"
    yield f"{vpc.metadata.namespace}/{vpc.name}: {vni}, {', '.join(vpc.spec.cidrs)}"
    ready = find_condition(vpc.status.conditions, "Ready")
    if ready is not None and ready.status != "True":
        yield f"{ready.reason}: {ready.message}"


def _server(subject: AttachmentSubject) -> Iterable[str]:
    server, function = subject.server, subject.attachment.spec.function
    if isinstance(server, Hidden):
        return
    name = subject.attachment.spec.server_ref
    if not isinstance(server, Server):
        yield f"there is no Server {name}"
        return
    yield f"{name} is assigned to {_namespace(server.spec.tenant)} (spec.tenant)"
    for each in () if isinstance(subject.dpus, Hidden) else subject.dpus:
        tenant = tenant_of(each, server, function)
        if tenant != server.spec.tenant:
            yield f"{function} of DPU {each.name} is assigned to {_namespace(tenant)} (spec.dpu.functions)"


def _namespace(tenant: str | None) -> str:
    return f"namespace {tenant}" if tenant is not None else "no namespace"


def _dpu(subject: AttachmentSubject) -> Iterable[str]:
    dpus = subject.dpus
    if isinstance(dpus, Hidden):
        if subject.attachment.status.dpu_ref is not None:
            yield subject.attachment.status.dpu_ref
        return
    if not dpus:
        yield f"Server {subject.attachment.spec.server_ref} has none"
    for each in sorted(dpus, key=lambda dpu: dpu.name):
        yield _dpu_words(each)


def _dpu_words(dpu: Server) -> str:
    rejected = ", rejected" if dpu.spec.acceptance == "Rejected" else ""
    vtep = dpu.spec.dpu.vtep_address if dpu.spec.dpu is not None else None
    underlay = f"{vtep} on the underlay" if vtep else "no address on the underlay"
    return f"{dpu.name}: {underlay}{rejected}"


def _addresses(subject: AttachmentSubject) -> Iterable[str]:
    found = subject.attachment.status
    return [f"{mine}, gateway {other}" for mine, other in zip(found.addresses, found.gateways, strict=False)]


def _claims(subject: AttachmentSubject) -> Iterable[str]:
    """Those that are another's, or wait until they are free."""
    if isinstance(subject.claims, Hidden):
        return
    for name, claim in sorted(subject.claims.items()):
        holder = f"{claim.spec.holder.namespace}/{claim.spec.holder.name}"
        if claim.status.released_time is not None:
            waits = f"; waits for DPU {', '.join(claim.status.waits_for)}" if claim.status.waits_for else ""
            since = ago(parse_time(claim.status.released_time), subject.now)
            yield f"{name} was let go of by {holder} {since} ago, and is not free yet{waits}"
        elif claim.spec.holder.uid != subject.attachment.metadata.uid:
            yield f"{name} is held by {holder}"


def _groups(subject: AttachmentSubject) -> Iterable[str]:
    if subject.vpc is None:
        return []
    names = groups_of(subject.vpc, subject.attachment)
    return [name if name in subject.groups else f"{name}, which is not there" for name in names]


def _remedies(subject: AttachmentSubject) -> Iterable[str]:
    attachment, where = subject.attachment, f"-n {subject.attachment.metadata.namespace}"
    if attachment.spec.quarantined:
        yield f"let it in again: kubectl provision vpc release {attachment.name} {where}"
    ready = ready_of(attachment)
    if is_told_and_unseen(subject) or ready is None or ready.reason in ("WaitsForClaims", "WaitsForCompilation"):
        yield (
            "wait a moment; if it lasts, have the administrators see whether the controllers of group network have a "
            "leader: kubectl -n provisioner-system get lease provisioner-network"
        )
    if agent_trouble(subject) is not None or (ready is not None and ready.reason in ("WaitsForDPU", "DPUDisagrees")):
        yield f"look at its DPU (administrators): kubectl describe dpunet {subject.dpu}"


def not_seen(hidden: Iterable[str]) -> Iterable[str]:
    """What the asker may not read, and who may."""
    found = list(hidden)
    if found:
        yield f"{', '.join(found)}: administrators see them, and more of the reason (ClusterRole {VIEWER})"
