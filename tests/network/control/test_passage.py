"""Whether packets come from one attachment to another, and which rule decides it."""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api import VPC, SecurityGroup, VPCAttachment
from provisioner.api.machinery.codec import decode
from provisioner.network.agent.model.ports import read_port
from provisioner.network.agent.rules.security_group import egress_chain, ingress_chain
from provisioner.network.control.compile.compile import compile_network
from provisioner.network.control.compile.passage import Packets, Passage, Side, decide, judge_passage
from provisioner.network.control.compile.peers import key_of, peers_of
from provisioner.network.control.compile.place import FunctionPlace
from provisioner.network.control.compile.security import in_order
from provisioner.network.control.compile.view import make_endpoint, make_view, port_of
from tests.network.control import objects

WEB = {"protocol": "TCP", "ports": ["443", "8000-8010"]}


def a_vpc(name: str = "main", *, namespace: str = "blue", peers: tuple[str, ...] = (), **changes: Any) -> VPC:
    named = [dict(zip(("namespace", "name"), each.split("/"), strict=True)) for each in peers]
    return decode(VPC, objects.vpc(namespace, name, peers=named, **changes))


def a_group(name: str, *rules: dict[str, Any], **changes: Any) -> SecurityGroup:
    return decode(SecurityGroup, objects.group("blue", name, *rules, **changes))


def a_side(name: str, address: str, *groups: SecurityGroup, vpc: VPC | None = None, **spec: Any) -> Side:
    vpc = vpc or a_vpc()
    body = objects.attachment(str(vpc.metadata.namespace), name, f"{name}-s", vpcRef=vpc.name, **spec)
    body["spec"]["securityGroupRefs"] = [*body["spec"].get("securityGroupRefs", ()), *(each.name for each in groups)]
    body["status"] = {"addresses": address.split()}
    return Side(vpc=vpc, attachment=decode(VPCAttachment, body), groups={each.name: each for each in groups})


def judge(one: Side, other: Side, protocol: Any = "Any", port: int | None = None, *more: VPC) -> Passage:
    known = {key_of(each): each for each in (one.vpc, other.vpc, *more)}
    return judge_passage(one, other, Packets(protocol=protocol, port=port), known.get)


def reasons(passage: Passage) -> list[str]:
    return [each.reason for each in passage.troubles]


def test_in_one_vpc_without_groups_everything_passes() -> None:
    passage = judge(a_side("a", "10.1.0.3"), a_side("b", "10.1.0.5"))
    (way,) = passage.ways
    assert (passage.extent, way.sender, way.receiver) == ("All", "10.1.0.3", "10.1.0.5")
    assert (way.answers_leave, way.answers_arrive) == ("Pass", "Pass")


def test_the_rule_that_decides_is_named_and_what_none_allows_is_dropped() -> None:
    web = a_group("web", objects.rule(action="Deny", priority=5, cidrs=["10.9.0.0/16"]), objects.rule(**WEB))
    one, other = a_side("a", "10.1.0.3"), a_side("b", "10.1.0.5", web)
    for port, passes in ((443, True), (8005, True), (8011, False)):
        passage = judge(one, other, "TCP", port)
        (share,) = passage.ways[0].gets
        assert passage.extent == ("All" if passes else "None")
        assert (share.by.number if share.by else None) == (2 if passes else None)
    whole = judge(one, other)
    assert whole.extent == "Some"
    assert [(each.protocol, each.ports, each.allowed) for each in whole.ways[0].gets] == [
        ("TCP", ("443", "8000-8010"), True),
        ("Any", (), False),
    ]


def test_of_the_same_priority_the_rule_that_denies_decides() -> None:
    both = a_group("both", objects.rule(**WEB), objects.rule(action="Deny", cidrs=["10.1.0.0/30"]))
    (share,) = judge(a_side("a", "10.1.0.3"), a_side("b", "10.1.0.5", both), "TCP", 443).ways[0].gets
    assert share.by is not None
    assert (share.allowed, share.by.number) == (False, 2)


def test_each_side_has_its_say() -> None:
    silent = a_group("silent", objects.rule("Egress", action="Deny"))
    assert judge(a_side("a", "10.1.0.3", silent), a_side("b", "10.1.0.5")).extent == "None"
    assert judge(a_side("a", "10.1.0.3"), a_side("b", "10.1.0.5", silent)).extent == "All", "it is about what b sends"


def test_answers_pass_by_a_stateful_rule_and_need_one_of_their_own_without() -> None:
    asks = objects.rule("Egress", protocol="TCP", ports=["443"])
    gets = objects.rule("Ingress", protocol="TCP", ports=["443"])
    one, other = a_group("one", asks, objects.rule("Ingress", action="Deny")), a_group("other", gets)
    assert (
        judge(a_side("a", "10.1.0.3", one), a_side("b", "10.1.0.5", other), "TCP", 443).ways[0].answers_arrive == "Pass"
    )
    stateless = a_group("one", asks, objects.rule("Ingress", action="Deny"), stateful=False)
    way = judge(a_side("a", "10.1.0.3", stateless), a_side("b", "10.1.0.5", other), "TCP", 443).ways[0]
    assert (way.answers_leave, way.answers_arrive) == ("Pass", "Drop")
    some = a_group("one", asks, objects.rule("Ingress", protocol="TCP", ports=["32768-60999"]), stateful=False)
    assert judge(a_side("a", "10.1.0.3", some), a_side("b", "10.1.0.5"), "TCP", 443).ways[0].answers_arrive == "Depend"


def test_what_is_quarantined_isolated_or_without_address_lets_nothing_pass() -> None:
    good = a_side("b", "10.1.0.5")
    assert reasons(judge(a_side("a", "10.1.0.3", quarantined=True), good)) == ["Quarantined"]
    side = a_side("a", "10.1.0.3")
    status = replace(side.attachment.status, forwarding_state="Quarantined")
    by_administrators = judge(good, replace(side, attachment=replace(side.attachment, status=status)))
    assert reasons(by_administrators) == ["Quarantined"]
    assert "by the administrators of its server" in by_administrators.troubles[0].message
    assert reasons(judge(good, a_side("a", "10.1.0.3", securityGroupRefs=["gone"]))) == ["SecurityGroupNotFound"]
    assert reasons(judge(a_side("a", ""), good)) == ["WaitsForClaims"]
    assert reasons(judge(a_side("a", "fd00:1::3"), good)) == ["NoCommonFamily"]


def test_another_vpc_is_reached_once_each_names_the_other() -> None:
    alone = a_vpc("other", cidrs=["10.2.0.0/24"])
    naming = a_vpc("other", cidrs=["10.2.0.0/24"], peers=("blue/main",))
    mine = a_vpc(peers=("blue/other",))

    def asked(one: VPC, other: VPC) -> Passage:
        return judge(a_side("a", "10.1.0.3", vpc=one), a_side("b", "10.2.0.5", vpc=other))

    assert reasons(asked(a_vpc(), alone)) == ["NotPeers"]
    one_sided = asked(a_vpc(), naming)
    assert reasons(one_sided) == ["PeerNotMutual"]
    assert "VPC 'blue/main' does not name VPC 'blue/other'" in one_sided.troubles[0].message
    assert reasons(asked(mine, alone)) == ["PeerNotMutual"]
    assert asked(mine, naming).extent == "All"
    overlapping = a_vpc("other", peers=("blue/main",))
    assert reasons(asked(mine, overlapping)) == ["PeerOverlaps"]


# The same as what DPUs are told

NAMES = ("a", "b", "c")


@given(st.sets(st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES))), st.sampled_from([None, "a", "b"]))
def test_two_reach_each_other_by_the_network_just_when_their_dpus_are_told_so(
    named: set[tuple[str, str]], quarantined: str | None
) -> None:
    vpcs = {
        name: a_vpc(
            name, cidrs=[f"10.{number}.0.0/24"], peers=tuple(f"blue/{y}" for x, y in sorted(named) if x == name)
        )
        for number, name in enumerate(NAMES, start=1)
    }
    known = {key_of(each): each for each in vpcs.values()}
    sides = {
        name: a_side(f"at-{name}", f"10.{number}.0.3", vpc=vpcs[name], quarantined=name == quarantined)
        for number, name in enumerate(NAMES, start=1)
    }
    views = {}
    for number, name in enumerate(NAMES, start=1):
        at = FunctionPlace(dpu=f"d{number}", vtep=f"10.255.0.{number}", function="pf0", mac_address="52:54:00:00:00:01")
        side = sides[name]
        endpoint = make_endpoint(side.vpc, side.attachment, at, side.attachment.status.addresses, side.groups)
        views[f"blue/{name}"] = make_view(side.vpc, number, peers_of(side.vpc, known.get), [endpoint])
    for number, name in enumerate(NAMES, start=1):
        spec = compile_network(f"d{number}", f"10.255.0.{number}", views)
        own = next((each for each in spec.vpcs if each.vni == number), None)
        reached = {prefix for remote in (own.remotes if own else ()) for prefix in remote.prefixes}
        for other_number, other in enumerate(NAMES, start=1):
            if other != name:
                passage = judge_passage(sides[name], sides[other], Packets(), known.get)
                assert (passage.extent == "All") == (f"10.{other_number}.0.3/32" in reached), (name, other, passage)


RULES = st.lists(
    st.fixed_dictionaries(
        {
            "direction": st.sampled_from(["Ingress", "Egress"]),
            "action": st.sampled_from(["Allow", "Deny"]),
            "priority": st.integers(0, 3),
            "cidrs": st.sampled_from([[], ["10.1.0.0/24"], ["10.1.0.4/31", "fd00::/8"], ["10.9.0.0/16"]]),
        }
    ).flatmap(
        lambda known: st.sampled_from(
            [
                {"protocol": "Any"},
                {"protocol": "ICMP"},
                {"protocol": "UDP"},
                {"protocol": "TCP"},
                {"protocol": "TCP", "ports": ["443"]},
                {"protocol": "TCP", "ports": ["80-500", "22"]},
            ]
        ).map(lambda more: known | more)
    ),
    max_size=6,
)


@given(
    RULES,
    st.sampled_from(["TCP", "UDP", "ICMP"]),
    st.sampled_from([22, 443, 8080]),
    st.sampled_from(["Ingress", "Egress"]),
)
def test_a_packet_is_judged_as_by_the_chains_that_the_agent_makes(
    rules: list[dict[str, Any]], protocol: Any, port: int, direction: Any
) -> None:
    side = a_side("a", "10.1.0.3", a_group("g", *rules))
    endpoint = make_endpoint(
        side.vpc,
        side.attachment,
        FunctionPlace(dpu="d", vtep="10.255.0.1", function="pf0", mac_address="52:54:00:00:00:01"),
        ("10.1.0.3",),
        side.groups,
    )
    chain = (egress_chain if direction == "Egress" else ingress_chain)(read_port(port_of(endpoint, 1)))
    other = "10.1.0.5"
    asked = Packets(protocol=protocol, port=None if protocol == "ICMP" else port)
    (share,) = decide(in_order(list(side.groups.values())), direction, other, asked)
    assert share.allowed == _lets_pass(chain.rules, other, protocol.lower(), port)


def _lets_pass(rules: Any, other: str, protocol: str, port: int) -> bool:
    """What the first rule of a chain that speaks of a packet does with it, read from the rule as nft is given it."""
    for each in rules:
        expressions = json.loads(each.source)
        if all(_fits(known["match"], other, protocol, port) for known in expressions if "match" in known):
            return "drop" not in expressions[-1]
    raise AssertionError("a chain without an end")


def _fits(match: Any, other: str, protocol: str, port: int) -> bool:
    left, right = match["left"], match["right"]
    if "ct" in left or "&" in left:
        return False  # the packet begins a connection
    values = right["set"] if isinstance(right, dict) and "set" in right else [right]
    if left.get("meta", {}).get("key") == "l4proto":
        return protocol in values
    what = left["payload"]
    if what["field"] == "dport":
        return what["protocol"] == protocol and any(
            each["range"][0] <= port <= each["range"][1] if isinstance(each, dict) else each == port for each in values
        )
    if what["protocol"] == "ip6":
        return False
    prefixes = [f"{e['prefix']['addr']}/{e['prefix']['len']}" if isinstance(e, dict) else e for e in values]
    return any(ip_address(other) in ip_network(prefix) for prefix in prefixes)


def test_the_interpreter_of_chains_can_tell_them_apart() -> None:
    """Or the test above would pass whatever it is given."""
    side = a_side("a", "10.1.0.3", a_group("g", objects.rule(protocol="TCP", ports=["443"]), stateful=False))
    at = FunctionPlace(dpu="d", vtep="10.255.0.1", function="pf0", mac_address="52:54:00:00:00:01")
    made = port_of(make_endpoint(side.vpc, side.attachment, at, ("10.1.0.3",), side.groups), 1)
    chain = ingress_chain(read_port(made))
    assert _lets_pass(chain.rules, "10.1.0.5", "tcp", 443)
    assert not _lets_pass(chain.rules, "10.1.0.5", "tcp", 444)
    assert not _lets_pass(chain.rules, "10.1.0.5", "udp", 443)


@pytest.mark.parametrize(
    ("later", "told"),
    [
        ({"protocol": "TCP", "ports": ["22"]}, []),
        ({"protocol": "TCP", "ports": ["1-65535"]}, []),
        ({"protocol": "UDP"}, [("UDP", 2)]),
    ],
    ids=["one port", "all ports", "another protocol"],
)
def test_a_share_that_an_earlier_rule_has_decided_is_not_told_again(
    later: dict[str, Any], told: list[tuple[str, int]]
) -> None:
    rules = objects.rule(action="Deny", protocol="TCP", priority=1), objects.rule(**later)
    gets = judge(a_side("a", "10.1.0.3"), a_side("b", "10.1.0.5", a_group("g", *rules))).ways[0].gets
    shares = [(each.protocol, each.by.number if each.by else None) for each in gets]
    assert shares == [("TCP", 1), *told, ("Any", None)]
