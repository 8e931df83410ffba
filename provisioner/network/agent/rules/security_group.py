"""The rules of a port's security groups, one chain for each direction; the first rule that speaks of a packet decides.

A chain of what the host sends returns where it lets pass, that of what the host gets accepts; both drop what no rule
allows. A stateful rule writes its number into the connection's mark: the lower half that of who began it, the upper
half that of who was asked. An answer passes where the mark bears the number of a rule that the port still has, so that
a rule that is taken away takes its connections with it, and no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from provisioner.network.agent.model.ports import Filter, Port
from provisioner.network.agent.model.state import Chain, NftRule
from provisioner.network.agent.rules.canonical import Expression, merged, rule
from provisioner.network.agent.rules.expressions import (
    ACCEPT,
    DROP,
    RETURN,
    ct,
    field,
    match,
    meta,
    networks,
    one_of,
)

_HALF_BITS: Final = 15
_HALF: Final = (1 << _HALF_BITS) - 1
_LOWER, _UPPER = _HALF, _HALF << _HALF_BITS
_IP_VERSIONS: Final = {4: "ip", 6: "ip6"}


def egress_chain(port: Port) -> Chain:
    """What the host sends: returns if it may."""
    return Chain("inet", egress_name(port.function), None, _rules(port, egress=True))


def ingress_chain(port: Port) -> Chain:
    """What the host gets: accepts if it may."""
    return Chain("inet", ingress_name(port.function), None, _rules(port, egress=False))


def egress_name(function: str) -> str:
    return f"egress_{function}"


def ingress_name(function: str) -> str:
    return f"ingress_{function}"


def _rules(port: Port, *, egress: bool) -> tuple[NftRule, ...]:
    passes = RETURN if egress else ACCEPT
    ours = [each for each in port.filters if each.egress == egress]
    if not ours:
        return (rule(passes),)
    rules = list(_answers(port.filters, egress=egress, passes=passes))
    for each in ours:
        rules += [rule(*matches, *_verdict(each, passes)) for matches in _matches(each)]
    return (*rules, rule(DROP))


def _answers(filters: Sequence[Filter], *, egress: bool, passes: Expression) -> list[NftRule]:
    """What the host sends in answer was asked for by a rule for what it gets, and the other way round."""
    numbers = sorted({mark_of(each) for each in filters if each.egress != egress and each.allow and each.stateful})
    if not numbers:
        return []
    half = _UPPER if egress else _LOWER
    return [
        rule(
            match(ct("direction"), "reply"),
            match({"&": [ct("mark"), half]}, one_of(numbers)),
            passes,
        )
    ]


def mark_of(each: Filter) -> int:
    """Its number in its half of the mark, never 0; the same as long as the rule says the same."""
    said = repr((each.egress, each.protocol, each.ports, each.cidrs)).encode()
    number = int.from_bytes(hashlib.sha256(said).digest()[:4], "big") % _HALF + 1
    return number if each.egress else number << _HALF_BITS


def _verdict(each: Filter, passes: Expression) -> list[Expression]:
    if not each.allow:
        return [DROP]
    if not each.stateful:
        return [passes]
    others = _UPPER if each.egress else _LOWER
    number = mark_of(each)
    # The mask lets the number's own bits pass, too, as nft prints it.
    mark = {"|": [{"&": [ct("mark"), others | number]}, number]}
    return [{"mangle": {"key": ct("mark"), "value": mark}}, passes]


def _matches(each: Filter) -> list[list[Expression]]:
    """The packets of a rule: one list of expressions for each family that its cidrs are of."""
    if not each.cidrs:
        return [[*_protocol(each, None)]]
    found = []
    for version, word in _IP_VERSIONS.items():
        cidrs = each.of_version(version)
        if cidrs:
            other_side = field(word, "daddr" if each.egress else "saddr")
            found.append([match(other_side, networks(cidrs)), *_protocol(each, version)])
    return found


def _protocol(each: Filter, version: int | None) -> list[Expression]:
    if each.protocol == "Any":
        return []
    if each.protocol == "ICMP":
        words = {4: ["icmp"], 6: ["ipv6-icmp"], None: ["icmp", "ipv6-icmp"]}[version]
        return [match(meta("l4proto"), one_of(words))]
    word = each.protocol.lower()
    if each.ports:
        return [match(field(word, "dport"), _ports(each.ports))]
    return [match(meta("l4proto"), word)]


def _ports(ranges: Sequence[tuple[int, int]]) -> Any:
    found = merged(sorted(ranges))
    return one_of([first if first == last else {"range": [first, last]} for first, last in found])
