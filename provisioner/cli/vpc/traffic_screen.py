"""`vpc why ATTACHMENT TO`: one screen about what passes from one attachment to another. Pure.

blue/a to blue/b: TCP 443 passes

network     both are in VPC blue/main
a sends     to 10.1.0.5: everything passes, as no rule of its groups speaks of what it sends
b gets      …
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from provisioner.api.machinery.conditions import find_condition
from provisioner.cli.kubectl.printing import screen
from provisioner.cli.vpc.attachment_screen import not_seen
from provisioner.cli.vpc.standing import standing_of, waits_for
from provisioner.cli.vpc.traffic import ForeignNamespace, Traffic
from provisioner.network.control.compile.passage import Answers, Packets, Share, Side, state_trouble
from provisioner.network.control.compile.peers import key_of, named_peers

_SENDS: Final = ("what it sends", "to")
_GETS: Final = ("what it gets", "from")


def render_traffic(traffic: Traffic) -> str:
    """The screen; ends with a newline."""
    one, other = traffic.sender.key, traffic.receiver.key
    ways = traffic.passage.ways
    sections: tuple[tuple[str, Iterable[str]], ...] = (
        ("network", _network(traffic)),
        ("now", _now(traffic)),
        ("sends", _by_shares(traffic.sender, [(way.sends, way.receiver) for way in ways], sends=True)),
        ("gets", _by_shares(traffic.receiver, [(way.gets, way.sender) for way in ways], sends=False)),
        ("answers", () if traffic.passage.extent == "None" else _answers(traffic)),
        ("also", [f"the other way: kubectl provision vpc why {other} {one}"]),
        ("not seen", [*not_seen(f"VPC {each}" for each in traffic.unread)]),
    )
    return screen(f"{one} to {other}: {verdict(traffic)}", sections)


def verdict(traffic: Traffic) -> str:
    """In a few words."""
    asked, passage = packets_words(traffic.asked), traffic.passage
    if passage.extent == "None":
        return "nothing passes" if traffic.asked.protocol == "Any" else f"{asked} does not pass"
    told = f"{asked} passes" if passage.extent == "All" else f"some passes, and not {asked}"
    lost = any("Drop" in (way.answers_leave, way.answers_arrive) for way in passage.ways if way.extent != "None")
    seen = ", as far as can be seen" if traffic.unread else ""
    return told + ", and answers do not" * lost + seen


def packets_words(packets: Packets) -> str:
    """`TCP 443`, `ICMP`, or `everything`."""
    if packets.protocol == "Any":
        return "everything"
    return packets.protocol if packets.port is None else f"{packets.protocol} {packets.port}"


def _network(traffic: Traffic) -> Iterator[str]:
    one, other = key_of(traffic.sender.vpc), key_of(traffic.receiver.vpc)
    troubles = traffic.passage.troubles
    if one == other:
        yield f"both are in VPC {one}"
    elif not any(each.reason in _OF_PEERS for each in troubles):
        yield f"VPCs {one} and {other} are peers: each names the other"
    for each in troubles:
        yield f"{each.reason}: {each.message}"


_OF_PEERS: Final = ("NotPeers", "PeerNotMutual", "PeerOverlaps", "PeersOverlap")


def _now(traffic: Traffic) -> Iterator[str]:
    """Of those that are not enforced as asked for: what is below holds once they are."""
    for side in (traffic.sender, traffic.receiver):
        if standing_of(side.attachment) != "Enforced":
            yield f"{side.key} is not enforced as asked for, so that this holds later: {waits_for(side.attachment)}"


def _by_shares(side: Side, ways: Iterable[tuple[tuple[Share, ...], str]], *, sends: bool) -> Iterator[str]:
    """What rules make of the addresses of both families is told once where it is the same."""
    for shares, found in groupby(ways, key=itemgetter(0)):
        others = " and ".join(other for _, other in found)
        yield from shares_words(shares, side, others, sends=sends)


def shares_words(shares: Iterable[Share], side: Side, other: str, *, sends: bool) -> Iterator[str]:
    """What a side's rules make of the packets, a line for each rule that decides of some."""
    what, preposition = _SENDS if sends else _GETS
    for share in shares:
        done = "passes" if share.allowed else "is dropped"
        part = _part(share)
        if share.by is not None:
            rule, group = share.by.rule, share.by.group
            why = f"rule {share.by.number} of SecurityGroup {group.name} ({rule.direction}, priority {rule.priority})"
        elif share.allowed:
            why = f"no rule of its groups speaks of {what}"
        else:
            why = f"its groups have rules for {what}, and none allows it"
        yield f"{side.key} {preposition} {other}: {part} {done}: {why}"


def _part(share: Share) -> str:
    packets = "everything" if share.protocol == "Any" else share.protocol
    ports = f" {', '.join(share.ports)}" if share.ports else ""
    return f"all other {packets}".replace("other everything", "else") if share.rest else f"{packets}{ports}"


_REMEDY: Final = "make a rule for them, or let a stateful group allow what is asked"
_ANSWERS: Final[dict[Answers, str]] = {
    "Pass": "pass",
    "Depend": f"pass to some ports alone, and the asking side takes one by chance: {_REMEDY}",
    "Drop": f"are dropped, so that no connection comes about: {_REMEDY}",
}


def _answers(traffic: Traffic) -> Iterator[str]:
    for way in traffic.passage.ways:
        if way.extent == "None":
            continue
        for side, where, answers in (
            (traffic.receiver, "sent by", way.answers_leave),
            (traffic.sender, "got by", way.answers_arrive),
        ):
            if answers != "Pass":
                address = way.receiver if side is traffic.receiver else way.sender
                yield f"{where} {side.key} ({address}) {_ANSWERS[answers]}"
    if all(way.answers_leave == way.answers_arrive == "Pass" for way in traffic.passage.ways):
        yield _ANSWERS["Pass"]


def render_foreign(foreign: ForeignNamespace) -> str:
    """The same where the receiver may not be read: what the sender's own namespace tells. Ends with a newline."""
    vpc, theirs = foreign.sender.vpc, foreign.namespace
    peers = [key for key in named_peers(vpc) if key.partition("/")[0] == theirs]
    trouble = state_trouble(foreign.sender)
    if trouble is None and not peers:
        words = f"nothing passes, as VPC {key_of(vpc)} names no VPC of namespace {theirs} in its spec.peers"
    elif trouble is not None:
        words = "nothing passes"
    else:
        words = f"what passes is also told by namespace {theirs}, which you may not read"
    ready = find_condition(vpc.status.conditions, "Ready")
    condition = [f"{ready.reason}: {ready.message}"] if ready is not None and ready.status != "True" else []
    sections: tuple[tuple[str, Iterable[str]], ...] = (
        ("why", [f"{trouble.reason}: {trouble.message}"] if trouble is not None else []),
        ("network", [f"VPC {key_of(vpc)} names {each} in its spec.peers" for each in peers] + condition),
        ("not seen", [f"namespace {theirs}: whose it is sees whether its VPC names yours, and what its groups let in"]),
    )
    return screen(f"{foreign.sender.key} to {foreign.text}: {words}", sections)
