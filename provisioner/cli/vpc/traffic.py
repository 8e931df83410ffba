"""Two attachments and what decides whether packets pass from one to the other, as far as the asker may read it."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.api import VPC
from provisioner.api.machinery.errors import Refused
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.vpc.references import find_one, read_reference
from provisioner.cli.vpc.subject import Hidden, find, read_groups, unless_hidden
from provisioner.cli.vpc.tenancy import VIEW, Tenancy, needing_in
from provisioner.network.control.compile.passage import Packets, Passage, Side, judge_passage
from provisioner.network.control.compile.peers import key_of


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The question and its answer. unread: VPCs that peering follows from and that the asker may not read."""

    sender: Side
    receiver: Side
    asked: Packets
    passage: Passage
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ForeignNamespace:
    """A question about an attachment of a namespace that the asker may not read. text: as it was named."""

    sender: Side
    namespace: str
    text: str


def read_traffic(tenancy: Tenancy, text: str, to: str, asked: Packets) -> Traffic | ForeignNamespace:
    """A number of requests that the VPCs' peers and groups bound. Raises: BadInput; Refused where the sender may not be
    read."""
    sender = _read_side(tenancy, text)
    namespace = read_reference(to).namespace or tenancy.namespace
    try:
        receiver = _read_side(tenancy, to)
    except Refused:
        if namespace == sender.attachment.metadata.namespace:
            raise
        return ForeignNamespace(sender=sender, namespace=namespace, text=to)
    if sender.attachment.metadata.uid == receiver.attachment.metadata.uid:
        raise BadInput(f"{text} and {to} are the same attachment", hint="name two")
    known: dict[str, VPC | None] = {key_of(side.vpc): side.vpc for side in (sender, receiver)}
    unread: list[str] = []

    def find_vpc(key: str) -> VPC | None:
        if key not in known:
            namespace, _, name = key.partition("/")
            found = unless_hidden(key, lambda: find(tenancy.cluster, VPC, name, namespace=namespace))
            if isinstance(found, Hidden):
                unread.append(key)
            known[key] = found if isinstance(found, VPC) else None
        return known[key]

    passage = judge_passage(sender, receiver, asked, find_vpc)
    return Traffic(sender=sender, receiver=receiver, asked=asked, passage=passage, unread=tuple(unread))


def _read_side(tenancy: Tenancy, text: str) -> Side:
    attachment = find_one(tenancy, text)
    namespace = str(attachment.metadata.namespace)
    with needing_in(namespace, VIEW):
        vpc = find(tenancy.cluster, VPC, attachment.spec.vpc_ref, namespace=namespace)
        groups = read_groups(tenancy.cluster, vpc, attachment)
    if vpc is None:
        raise BadInput(
            f"attachment {attachment.name} joins VPC {attachment.spec.vpc_ref}, which is not there: nothing passes",
            hint="make the VPC, or detach it",
        )
    return Side(vpc=vpc, attachment=attachment, groups=groups)
