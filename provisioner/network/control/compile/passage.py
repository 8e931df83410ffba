"""Whether packets of one attachment come to another one, and what decides it: for who asks. Pure.

What DPUs are told follows from the same functions: which VPCs are peers, what isolates, in which order rules decide.
Here they are asked of one pair of attachments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final, Literal

from provisioner.api import VPC, SecurityGroup, VPCAttachment
from provisioner.api.network.security_group import Direction, Protocol, SecurityRule
from provisioner.network.control.compile.peers import FindVPC, judge_peer, key_of, named_peers
from provisioner.network.control.compile.security import (
    OrderedRule,
    group_trouble,
    groups_of,
    in_order,
    remembers_what_passes,
)
from provisioner.network.control.compile.trouble import Trouble
from provisioner.network.control.compile.view import forwarding_state

Extent = Literal["All", "Some", "None"]
"""How much of what is asked about passes."""
Answers = Literal["Pass", "Depend", "Drop"]
"""Depend: on the port that the asking side chose."""

_LAST_PORT: Final = 65535


@dataclass(frozen=True, kw_only=True)
class Packets:
    """Those that are asked about. protocol: Any for all. port: the destination's, of TCP and UDP; None for all."""

    protocol: Protocol = "Any"
    port: int | None = None


@dataclass(frozen=True, kw_only=True)
class Share:
    """A part of the packets, and what becomes of it. ports: of destination; all if empty. by: the rule that decides;
    None where none speaks of them. rest: of what the shares before it are not of."""

    protocol: Protocol
    ports: tuple[str, ...]
    allowed: bool
    by: OrderedRule | None
    rest: bool


@dataclass(frozen=True, kw_only=True)
class Side:
    """An attachment with its VPC. groups: those that it and the VPC name, as far as they are there."""

    vpc: VPC
    attachment: VPCAttachment
    groups: Mapping[str, SecurityGroup]

    @property
    def key(self) -> str:
        """namespace/name."""
        return f"{self.attachment.metadata.namespace}/{self.attachment.name}"

    def address(self, version: int) -> str | None:
        """The one that it was given, of IP version 4 or 6."""
        given = self.attachment.status.addresses
        return next((each for each in given if ip_address(each).version == version), None)

    @property
    def rules(self) -> list[OrderedRule]:
        """In the order in which they decide."""
        return in_order([self.groups[each] for each in groups_of(self.vpc, self.attachment) if each in self.groups])


@dataclass(frozen=True, kw_only=True)
class AddressPair:
    """From one address to another of its family. sends, gets: what the sender's rules and the receiver's make of the
    packets. answers_leave, answers_arrive: what they make of the answers to those that pass."""

    sender: str
    receiver: str
    sends: tuple[Share, ...]
    gets: tuple[Share, ...]
    answers_leave: Answers
    answers_arrive: Answers

    @property
    def extent(self) -> Extent:
        both = (extent_of(self.sends), extent_of(self.gets))
        return "None" if "None" in both else "All" if both == ("All", "All") else "Some"


@dataclass(frozen=True, kw_only=True)
class Passage:
    """troubles: why nothing passes, whatever rules say. ways: one for each family that both sides have."""

    troubles: tuple[Trouble, ...]
    ways: tuple[AddressPair, ...]

    @property
    def extent(self) -> Extent:
        found = {each.extent for each in self.ways}
        if self.troubles or not found:
            return "None"
        return found.pop() if len(found) == 1 else "Some"


def judge_passage(sender: Side, receiver: Side, asked: Packets, find: FindVPC) -> Passage:
    """`find`: at least the two VPCs, and the peers that they name."""
    troubles = [_network_trouble(sender.vpc, receiver.vpc, find), *(state_trouble(each) for each in (sender, receiver))]
    found = [each for each in troubles if each is not None]
    ways = []
    for version in (4, 6):
        one, other = sender.address(version), receiver.address(version)
        if one is not None and other is not None:
            ways.append(_way(sender, receiver, one, other, asked))
    given = sender.attachment.status.addresses and receiver.attachment.status.addresses
    if not ways and given:
        found.append(
            Trouble(
                reason="NoCommonFamily",
                message=f"{sender.key} and {receiver.key} have no address of one family, IPv4 or IPv6: add a subnet "
                "of the other family to spec.cidrs of one of their VPCs",
            )
        )
    return Passage(troubles=tuple(found), ways=tuple(ways))


def state_trouble(side: Side) -> Trouble | None:
    """Why nothing passes at one side."""
    if forwarding_state(side.vpc, side.attachment, side.groups) == "Quarantined":
        return Trouble(
            reason="Quarantined",
            message=f"{side.key} is quarantined (spec.quarantined), so that nothing passes there",
        )
    if side.attachment.status.forwarding_state == "Quarantined" and not side.attachment.spec.quarantined:
        return Trouble(
            reason="Quarantined",
            message=f"{side.key} is quarantined by the administrators of its server, so that nothing passes there",
        )
    trouble = group_trouble(side.vpc, side.attachment, side.groups)
    if trouble is not None:
        return Trouble(reason=trouble.reason, message=f"{side.key} is isolated: {trouble.message}")
    if not side.attachment.status.addresses:
        return Trouble(reason="WaitsForClaims", message=f"{side.key} has no address yet, and so no packets")
    return None


def _network_trouble(one: VPC, other: VPC, find: FindVPC) -> Trouble | None:
    if key_of(one) == key_of(other):
        return None
    if key_of(other) in named_peers(one):
        return judge_peer(one, other, find)
    if key_of(one) in named_peers(other):
        return judge_peer(other, one, find)
    return Trouble(
        reason="NotPeers",
        message=f"VPC '{key_of(one)}' and VPC '{key_of(other)}' are no peers: each has to name the other in its "
        "spec.peers",
    )


def decide(rules: Sequence[OrderedRule], direction: Direction, other: str, asked: Packets) -> tuple[Share, ...]:
    """What rules in their order make of packets to (Egress) or from (Ingress) the address `other`. The last share is of
    all that the others are not of."""
    ours = [each for each in rules if each.rule.direction == direction]
    shares: list[Share] = []
    for each in ours:
        rule = each.rule
        part = _part(rule, asked) if _is_about(rule, other) else None
        if part is None or any(_holds(share, part) for share in shares):
            continue
        whole = part == asked_part(asked)
        protocol, ports = part
        shares.append(
            Share(protocol=protocol, ports=ports, allowed=rule.action == "Allow", by=each, rest=whole and bool(shares))
        )
        if whole:
            return tuple(shares)
    protocol, ports = asked_part(asked)
    rest = Share(protocol=protocol, ports=ports, allowed=not ours, by=None, rest=bool(shares))
    return (*shares, rest)


Part = tuple[Protocol, tuple[str, ...]]
"""Packets of a protocol, to ports; to all if there are none."""


def asked_part(asked: Packets) -> Part:
    return asked.protocol, (str(asked.port),) if asked.port is not None else ()


def extent_of(shares: Sequence[Share]) -> Extent:
    """How much of the packets they let pass."""
    allowed = {each.allowed for each in shares}
    return "All" if allowed == {True} else "None" if allowed == {False} else "Some"


def _is_about(rule: SecurityRule, other: str) -> bool:
    """Whether its cidrs hold the other side's address."""
    address = ip_address(other)
    subnets = [ip_network(each) for each in rule.cidrs]
    return not subnets or any(each.version == address.version and address in each for each in subnets)


def _part(rule: SecurityRule, asked: Packets) -> Part | None:
    """Those of the packets that a rule speaks of; None if it speaks of none."""
    if asked.protocol == "Any":
        return rule.protocol, rule.ports
    if rule.protocol not in ("Any", asked.protocol):
        return None
    if not rule.ports or _covers(rule.ports, (1, _LAST_PORT)):
        return asked_part(asked)
    if asked.port is None:
        return asked.protocol, rule.ports
    return asked_part(asked) if _covers(rule.ports, (asked.port, asked.port)) else None


def _holds(share: Share, part: Part) -> bool:
    """Whether all of `part` is decided by that share already."""
    protocol, ports = part
    if share.protocol != protocol:
        return False
    return not share.ports or (bool(ports) and all(_covers(share.ports, _range(each)) for each in ports))


def _covers(ports: Sequence[str], wanted: tuple[int, int]) -> bool:
    """Whether one of the ranges holds all of `wanted`, by its first and last port."""
    return any(first <= wanted[0] and wanted[1] <= last for first, last in map(_range, ports))


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _way(sender: Side, receiver: Side, one: str, other: str, asked: Packets) -> AddressPair:
    sends = decide(sender.rules, "Egress", other, asked)
    gets = decide(receiver.rules, "Ingress", one, asked)
    return AddressPair(
        sender=one,
        receiver=other,
        sends=sends,
        gets=gets,
        answers_leave=_answers(receiver.rules, "Egress", gets, one, asked),
        answers_arrive=_answers(sender.rules, "Ingress", sends, other, asked),
    )


def _answers(
    rules: Sequence[OrderedRule], direction: Direction, asking: Sequence[Share], other: str, asked: Packets
) -> Answers:
    """What a side's rules make of answers, which go in `direction`. `asking`: its shares of what was asked. A stateful
    rule lets the answers to what it lets pass through, too; the others come to a port that nobody knows before."""
    passing = [each for each in asking if each.allowed]
    by_none = remembers_what_passes(rules)
    if passing and all(each.by.group.spec.stateful if each.by is not None else by_none for each in passing):
        return "Pass"
    extent = extent_of(decide(rules, direction, other, Packets(protocol=asked.protocol)))
    return {"All": "Pass", "Some": "Depend", "None": "Drop"}[extent]  # type: ignore[return-value]
