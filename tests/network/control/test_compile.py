"""What one DPU is told, of VPCs as they are."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api import VPC, SecurityGroup
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.network.vpc import VPCRoute
from provisioner.network.control.compile import peers as peers_module
from provisioner.network.control.compile import room
from provisioner.network.control.compile.compile import compile_network, to_object
from provisioner.network.control.compile.overlap import first_shared, first_shared_of_each, those_inside
from provisioner.network.control.compile.peers import held_by_peers, judge_peer, peer_trouble, peers_of
from provisioner.network.control.compile.place import FunctionPlace
from provisioner.network.control.compile.room import room_for
from provisioner.network.control.compile.security import rules_of
from provisioner.network.control.compile.view import Endpoint, VPCView, make_view, port_of, route_trouble
from tests.network.control import objects

pytestmark = pytest.mark.slow


def endpoint(dpu: int, address: str, *, function: str = "pf0", state: str = "Tenant", **more: Any) -> Endpoint:
    at = FunctionPlace(dpu=f"d{dpu}", vtep=f"10.255.0.{dpu}", function=function, mac_address="52:54:00:00:00:01")
    known: dict[str, Any] = {"prefixes": (), "groups": ()} | more
    return Endpoint(
        attachment=f"t/{address}", place=at, addresses=(address,), hosts=(f"{address}/32",), state=state, **known  # type: ignore[arg-type]
    )  # fmt: skip


def view(key: str, vni: int, *endpoints: Endpoint, peers: tuple[str, ...] = (), **more: Any) -> VPCView:
    known: dict[str, Any] = {"mtu_bytes": 1450, "cidrs": (f"10.{vni}.0.0/16",), "routes": ()} | more
    return VPCView(key=key, vni=vni, peers=peers, endpoints=endpoints, **known)


def compiled(dpu: int, *views: VPCView) -> dict[str, Any]:
    found = compile_network(f"d{dpu}", f"10.255.0.{dpu}", {each.key: each for each in views})
    spec: dict[str, Any] = to_json(found)
    assert to_object(found) == spec
    return spec


def domain(spec: dict[str, Any], vni: int) -> dict[str, Any]:
    (found,) = [each for each in spec["vpcs"] if each["vni"] == vni]
    return {"remotes": {}, "members": [], "peerVnis": []} | found | {
        "remotes": {each["vtep"]: each["prefixes"] for each in found.get("remotes", ())}
    }  # fmt: skip


def test_a_dpu_without_a_port_in_a_vpc_hears_nothing_of_it() -> None:
    assert compiled(3, view("t/a", 1, endpoint(1, "10.1.0.3"))) == {"vtepAddress": "10.255.0.3"}


def test_of_one_vpc_remotes_and_members_are_the_other_dpus_alone() -> None:
    a = view("t/a", 1, endpoint(1, "10.1.0.3"), endpoint(1, "10.1.0.5", function="pf1"), endpoint(2, "10.1.0.7"))
    found = domain(compiled(1, a), 1)
    assert found["remotes"] == {"10.255.0.2": ["10.1.0.7/32"]}
    assert found["members"] == ["10.255.0.2"]


def test_packets_travel_in_the_vni_of_their_sender() -> None:
    """For every pair of hosts that may talk the sender's DPU has a way, and the receiver's takes it in and on."""
    a = view("t/a", 1, endpoint(1, "10.1.0.3"), endpoint(2, "10.1.0.5"), peers=("t/b",))
    b = view("t/b", 2, endpoint(2, "10.2.0.3", function="pf1"), endpoint(3, "10.2.0.5"), peers=("t/a", "t/c"))
    c = view("t/c", 3, endpoint(3, "10.3.0.3", function="pf1"), endpoint(4, "10.3.0.5"), peers=("t/b",))
    views = {each.key: each for each in (a, b, c)}
    specs = {dpu: compiled(dpu, a, b, c) for dpu in (1, 2, 3, 4)}
    hosts = [(each, one) for each in (a, b, c) for one in each.endpoints]
    for (mine, sender), (theirs, receiver) in itertools.permutations(hosts, 2):
        may = mine is theirs or theirs.key in mine.peers
        here, there = specs[int(sender.place.dpu[1:])], specs[int(receiver.place.dpu[1:])]
        known = {each["vni"] for each in there["vpcs"]}
        if sender.place.dpu == receiver.place.dpu:
            passes = mine is theirs or theirs.vni in domain(here, mine.vni)["peerVnis"]
        else:
            way = domain(here, mine.vni)["remotes"].get(receiver.place.vtep, [])
            passes = receiver.hosts[0] in way and mine.vni in known
            if passes:
                passes = sender.place.vtep in domain(there, mine.vni)["members"]
                onward = [mine.vni, *domain(there, mine.vni)["peerVnis"]]
                passes = passes and theirs.vni in onward
        assert passes == may, f"{sender.addresses} to {receiver.addresses}"
    assert set(views) == {"t/a", "t/b", "t/c"}


def test_peering_is_not_passed_on() -> None:
    a = view("t/a", 1, endpoint(1, "10.1.0.3"), peers=("t/b",))
    b = view("t/b", 2, endpoint(2, "10.2.0.3"), peers=("t/a", "t/c"))
    c = view("t/c", 3, endpoint(3, "10.3.0.3"), peers=("t/b",))
    assert {each["vni"] for each in compiled(1, a, b, c)["vpcs"]} == {1, 2}
    spec = compiled(2, a, b, c)
    assert {each["vni"] for each in spec["vpcs"]} == {1, 2, 3}
    assert domain(spec, 1)["peerVnis"] == domain(spec, 3)["peerVnis"] == [2]
    assert domain(spec, 2)["peerVnis"] == [1, 3]


def test_what_is_isolated_or_quarantined_is_in_nobodys_remotes_and_its_dpu_no_member() -> None:
    for state in ("Isolated", "Quarantined"):
        a = view("t/a", 1, endpoint(1, "10.1.0.3"), endpoint(2, "10.1.0.5", state=state), peers=("t/b",))
        b = view("t/b", 2, endpoint(3, "10.2.0.3"), peers=("t/a",))
        assert domain(compiled(1, a, b), 1)["members"] == []
        assert domain(compiled(1, a, b), 1)["remotes"] == {"10.255.0.3": ["10.2.0.3/32"]}
        spec = compiled(2, a, b)
        assert [each["state"] for each in spec["ports"]] == [state]
        assert spec["vpcs"] == [{"vni": 1, "vpc": "t/a", "mtuBytes": 1450}], "it takes part in nothing"


def test_a_route_is_behind_its_attachment_and_takes_nobodys_address() -> None:
    routed = ("10.1.0.5/32", "192.168.7.0/24", "10.2.8.0/24", "0.0.0.0/0")
    vpc = decode(VPC, objects.vpc("t", "a", cidrs=["10.1.0.0/16"], routes=[
        {"destination": each, "nextHop": "10.1.0.3"} for each in routed
    ]))  # fmt: skip
    a = make_view(vpc, 1, (), [endpoint(1, "10.1.0.3", prefixes=routed), endpoint(2, "10.1.0.5")])
    assert domain(compiled(2, a), 1)["remotes"] == {
        "10.255.0.1": ["0.0.0.0/0", "10.1.0.3/32", "10.2.8.0/24", "192.168.7.0/24"]
    }
    assert "10.1.0.5/32" not in compiled(1, a)["ports"][0]["prefixes"]
    trouble = route_trouble(vpc, ["10.1.0.3", "10.1.0.5"])
    assert trouble is not None
    assert trouble.reason == "RouteTakesAddress"
    nowhere = route_trouble(vpc, ["10.1.0.5"])
    assert nowhere is not None
    assert nowhere.reason == "RouteWithoutAttachment"


def test_a_route_of_a_peer_takes_nothing_that_is_the_vpcs_own() -> None:
    routes = ("0.0.0.0/0", "10.2.8.0/24", "192.168.7.0/25")
    a = view("t/a", 1, endpoint(1, "10.1.0.3", prefixes=routes), routes=routes, peers=("t/b",))
    b = view("t/b", 2, endpoint(2, "10.2.0.3"), routes=("192.168.7.0/24",), peers=("t/a",))
    assert domain(compiled(2, a, b), 2)["remotes"] == {"10.255.0.1": ["0.0.0.0/0", "10.1.0.3/32"]}


def test_rules_are_sorted_by_priority_and_what_denies_comes_first() -> None:
    rules = [
        objects.rule(priority=20, action="Allow", ports=["1"]),
        objects.rule(priority=20, action="Deny", ports=["2"]),
        objects.rule(priority=10, action="Allow", ports=["3"]),
    ]
    one = decode(SecurityGroup, objects.group("t", "one", *rules, stateful=False))
    two = decode(SecurityGroup, objects.group("t", "two", objects.rule(priority=20, ports=["4"])))
    found = rules_of([one, two])
    *told, rest = found
    assert [each.ports for each in told] == [("3",), ("2",), ("1",), ("4",)]
    assert (rest.direction, rest.ports, rest.stateful) == ("Egress", (), True), "answers to what the host sends"
    assert [each.stateful for each in told] == [False, False, False, True]
    assert port_of(endpoint(1, "10.1.0.3", groups=(one,), state="Quarantined"), 1).rules == ()


@given(st.randoms())
def test_of_the_same_facts_comes_the_same_object(chance: Any) -> None:
    endpoints = [endpoint(dpu, f"10.1.0.{2 * dpu + 1}") for dpu in range(1, 6)]
    others = [endpoint(dpu, f"10.2.0.{2 * dpu + 1}", function="pf1") for dpu in range(3, 8)]
    b = view("t/b", 2, *others, peers=("t/a",))
    wanted = compiled(3, view("t/a", 1, *endpoints, peers=("t/b",)), b)
    chance.shuffle(endpoints)
    mixed = view("t/a", 1, *endpoints, peers=("t/b",))
    assert compiled(3, *chance.sample([mixed, b], 2)) == wanted


def vpcs(**cidrs_and_peers: tuple[str, str]) -> dict[str, VPC]:
    found = {}
    for name, (cidr, peers) in cidrs_and_peers.items():
        named = [{"namespace": "t", "name": peer} for peer in peers]
        found[f"t/{name}"] = decode(VPC, objects.vpc("t", name, cidrs=[cidr], peers=named))
    return found


def test_only_both_together_make_peers() -> None:
    found = vpcs(a=("10.1.0.0/16", "bc"), b=("10.2.0.0/16", "a"), c=("10.3.0.0/16", ""))
    assert [each.name for each in peers_of(found["t/a"], found.get)] == ["b"]
    assert peers_of(found["t/c"], found.get) == []
    trouble = peer_trouble(found["t/a"], found.get)
    assert trouble is not None
    assert trouble.reason == "PeerNotMutual"
    gone = peer_trouble(found["t/a"], {key: each for key, each in found.items() if key != "t/c"}.get)
    assert gone == trouble, "whether there is such a VPC is not told"


def test_peers_with_the_same_addresses_exchange_nothing() -> None:
    found = vpcs(a=("10.1.0.0/16", "b"), b=("10.1.8.0/24", "a"))
    assert peers_of(found["t/a"], found.get) == peers_of(found["t/b"], found.get) == []
    trouble = peer_trouble(found["t/a"], found.get)
    assert trouble is not None
    assert (trouble.reason, "10.1.8.0/24" in trouble.message) == ("PeerOverlaps", True)


def holding(found: dict[str, VPC]) -> dict[str, VPC]:
    """The VPCs once the controller has written what their peers hold."""
    return {
        key: replace(each, status=replace(each.status, peers=held_by_peers(each, found.get)))
        for key, each in found.items()
    }


def also(vpc: VPC, *, cidr: str | None = None, route: str | None = None) -> VPC:
    """The VPC with more."""
    cidrs = (*vpc.spec.cidrs, *([cidr] if cidr else ()))
    routes = tuple(VPCRoute(destination=each, next_hop="10.1.0.3") for each in ([route] if route else ()))
    return replace(vpc, spec=replace(vpc.spec, cidrs=cidrs, routes=(*vpc.spec.routes, *routes)))


def reason(found: dict[str, VPC], key: str) -> str | None:
    trouble = peer_trouble(found[key], found.get)
    return trouble.reason if trouble is not None else None


@pytest.mark.parametrize("order", ["bc", "cb"])
@pytest.mark.parametrize("added", [
    {"cidr": "10.2.0.0/16"}, {"cidr": "10.2.7.0/24"}, {"cidr": "10.0.0.0/8"}, {"cidr": "fd00:2::/48"},
    {"route": "10.2.0.0/16"}, {"route": "10.2.7.1/32"}, {"route": "192.168.7.0/25"},
])  # fmt: skip
def test_a_peer_takes_nothing_of_another_one_by_what_it_adds(order: str, added: dict[str, str]) -> None:
    """Whoever of the two is named first, and by cidr or route, of both families."""
    found = vpcs(a=("10.1.0.0/16" if added != {"cidr": "10.0.0.0/8"} else "172.16.0.0/16", order),
                 b=("10.2.0.0/16", "a"), c=("10.3.0.0/16", "a"))  # fmt: skip
    found["t/b"] = also(also(found["t/b"], cidr="fd00:2::/64"), route="192.168.7.0/24")
    found = holding(found)
    found["t/c"] = also(found["t/c"], **added)
    for now in (found, holding(found), holding(holding(found))):
        assert [each.name for each in peers_of(now["t/a"], now.get)] == ["b"]
        assert [each.name for each in peers_of(now["t/b"], now.get)] == ["a"]
        assert peers_of(now["t/c"], now.get) == []
        assert (reason(now, "t/a"), reason(now, "t/b"), reason(now, "t/c")) == ("PeersOverlap", None, "PeersOverlap")
        told = peer_trouble(now["t/c"], now.get)
        assert told is not None
        assert "t/b" not in told.message, "whose the addresses are, is not told to another tenant"
        told = peer_trouble(now["t/a"], now.get)
        assert told is not None
        assert "'t/b'" in told.message
        assert "'t/c'" in told.message


@pytest.mark.parametrize("order", ["bc", "cb"])
def test_of_two_new_peers_with_the_same_addresses_neither_is_one_and_each_is_told(order: str) -> None:
    found = vpcs(a=("10.1.0.0/16", order), b=("10.2.0.0/16", "a"), c=("10.2.0.0/16", "a"))
    for now in (found, holding(found)):
        assert [peers_of(now[f"t/{name}"], now.get) for name in "abc"] == [[], [], []]
        assert {reason(now, f"t/{name}") for name in "abc"} == {"PeersOverlap"}
        assert not now["t/a"].status.peers, "nothing is held by either"


def test_who_is_refused_for_what_it_adds_holds_what_it_held_and_returns_with_that() -> None:
    found = vpcs(a=("10.1.0.0/16", "bc"), b=("10.2.0.0/16", "a"), c=("10.3.0.0/16", "a"))
    honest = found["t/c"]
    found = holding(found)
    found["t/c"] = also(found["t/c"], route="10.2.7.0/24")
    found = holding(found)
    found["t/b"] = also(found["t/b"], cidr="10.3.7.0/24")
    assert {each.name for each in peers_of(found["t/a"], found.get)} == set(), "b has taken nothing of it meanwhile"
    found["t/b"] = replace(found["t/b"], spec=replace(found["t/b"].spec, cidrs=("10.2.0.0/16",)))
    found["t/c"] = replace(found["t/c"], spec=honest.spec)
    assert {each.name for each in peers_of(found["t/a"], found.get)} == {"b", "c"}


def test_a_peer_that_grows_into_free_addresses_stays_one() -> None:
    """The honest twin; what it has added is its own from then on."""
    found = holding(vpcs(a=("10.1.0.0/16", "cb"), b=("10.2.0.0/16", "a"), c=("10.3.0.0/16", "a")))
    found["t/b"] = also(found["t/b"], cidr="10.4.0.0/16")
    assert {each.name for each in peers_of(found["t/a"], found.get)} == {"b", "c"}
    found = holding(found)
    found["t/c"] = also(found["t/c"], cidr="10.4.0.0/24")
    assert {each.name for each in peers_of(found["t/a"], found.get)} == {"b"}


def test_a_peer_that_names_us_no_more_hides_no_other_one() -> None:
    found = vpcs(a=("10.1.0.0/16", "dbc"), b=("10.2.0.0/16", "a"), c=("10.2.0.0/16", "a"), d=("10.4.0.0/16", ""))
    trouble = peer_trouble(found["t/a"], found.get)
    assert trouble is not None
    assert trouble.reason == "PeersOverlap"
    of_each = [judge_peer(found["t/a"], found[f"t/{name}"], found.get) for name in "dbc"]
    assert trouble.message.split("; ") == "; ".join(each.message for each in of_each if each is not None).split("; ")
    assert [each.reason for each in of_each if each is not None] == ["PeerNotMutual", "PeersOverlap", "PeersOverlap"]


def unrecorded(found: dict[str, VPC]) -> dict[str, VPC]:
    """As a version left them that recorded nothing of peers."""
    return {key: replace(each, status=replace(each.status, vni=1, peers=None)) for key, each in found.items()}


@pytest.mark.parametrize(("order", "routes", "stay"), [
    ("bc", "", "b"), ("cb", "", "c"), ("bc", "b", "c"), ("cb", "b", "c"), ("bc", "c", "b"), ("cb", "c", "b"),
])  # fmt: skip
def test_a_peer_from_before_records_stays_one_and_the_other_one_is_told(order: str, routes: str, stay: str) -> None:
    """Whoever was named first; but a route to what is of a cidr counts against who has it."""
    found = vpcs(a=("10.1.0.0/16", order), b=("10.2.0.0/16", "a"), c=("10.2.7.0/24", "a"))
    for name in routes:
        other = found["t/c" if name == "b" else "t/b"]
        vpc = found[f"t/{name}"]
        found[f"t/{name}"] = also(
            replace(vpc, spec=replace(vpc.spec, cidrs=("10.9.0.0/16",))), route=other.spec.cidrs[0]
        )
    found = unrecorded(found)
    gone = "b" if stay == "c" else "c"
    for now in (found, holding(found), holding(holding(found))):
        assert [each.name for each in peers_of(now["t/a"], now.get)] == [stay]
        assert [peers_of(now[f"t/{name}"], now.get) != [] for name in (stay, gone)] == [True, False]
        assert [reason(now, f"t/{name}") for name in ("a", stay, gone)] == ["PeersOverlap", None, "PeersOverlap"]


def test_peers_from_before_records_that_share_nothing_stay() -> None:
    found = unrecorded(vpcs(a=("10.1.0.0/16", "bc"), b=("10.2.0.0/16", "a"), c=("10.3.0.0/16", "a")))
    for now in (found, holding(found)):
        assert [each.name for each in peers_of(now["t/a"], now.get)] == ["b", "c"]
        assert {reason(now, f"t/{name}") for name in "abc"} == {None}


def test_that_no_peer_holds_anything_is_recorded_and_nobody_is_taken_for_one_from_before() -> None:
    alone = holding(unrecorded(vpcs(a=("10.1.0.0/16", ""))))["t/a"]
    assert to_json(alone.status)["peers"] == []
    assert decode(VPC, objects.vpc("t", "a") | {"status": to_json(alone.status)}).status.peers == ()
    found = vpcs(a=("10.1.0.0/16", "bc"), b=("10.2.0.0/16", "a"), c=("10.2.0.0/16", "a"))
    found["t/a"] = replace(found["t/a"], status=alone.status)
    assert peers_of(found["t/a"], found.get) == []


@pytest.mark.parametrize("recorded", [True, False])
def test_however_much_peers_hold_it_is_compared_once(recorded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many peers as there may be, with as many cidrs and routes, and all are each other's."""
    names = "abcdefghijklmnopq"
    found = vpcs(**{name: ("10.1.0.0/16", names.replace(name, "")) for name in names})
    for number, (key, vpc) in enumerate(found.items()):
        cidrs = tuple(f"10.{number}.{each}.0/24" for each in range(8))
        routes = tuple(VPCRoute(destination=f"172.16.{number}.{n}/32", next_hop=f"10.{number}.0.3") for n in range(64))
        found[key] = replace(vpc, spec=replace(vpc.spec, cidrs=cidrs, routes=routes))
    found = holding(found) if recorded else unrecorded(found)
    calls = dict.fromkeys(("_rivals", "first_shared", "first_shared_of_each"), 0)

    def counted(name: str) -> Any:
        real = getattr(peers_module, name)

        def call(*arguments: Any) -> Any:
            calls[name] += 1
            return real(*arguments)

        return call

    for name in calls:
        monkeypatch.setattr(peers_module, name, counted(name))
    for ask in (peers_of, peer_trouble):
        calls |= dict.fromkeys(calls, 0)
        assert ask(found["t/a"], found.get) in (None, [found[f"t/{name}"] for name in names[1:]])
        assert calls["_rivals"] == 17, "the VPC's own once, and once each peer's"
        assert calls["first_shared"] == 17 * 16 + 16, "each with its own peers, and not the peers with one another"
        assert calls["first_shared_of_each"] <= 17 * 3


SUBNETS = ["10.1.0.0/16", "10.2.0.0/16", "10.2.1.0/24", "10.3.0.0/16", "10.2.1.8/32", "0.0.0.0/0", "::/0", "fd00::/64"]


@given(st.lists(st.tuples(st.sampled_from(SUBNETS[:4]), st.lists(st.sampled_from("abcd"), unique=True),
                          st.lists(st.sampled_from(SUBNETS), unique=True, max_size=2)),
                min_size=4, max_size=4), st.booleans())  # fmt: skip
def test_whoever_is_whose_peer_is_the_same_seen_from_both_and_no_two_have_the_same_addresses(
    made: list[tuple[str, list[str], list[str]]], rewritten: bool
) -> None:
    found = vpcs(**{name: (cidr, "".join(peers)) for name, (cidr, peers, _) in zip("abcd", made, strict=True)})
    for name, (_, _, routes) in zip("abcd", made, strict=True):
        of_it = tuple(VPCRoute(destination=each, next_hop="10.1.0.3") for each in routes)
        vpc = found[f"t/{name}"]
        found[f"t/{name}"] = replace(vpc, spec=replace(vpc.spec, routes=of_it))
        if rewritten:
            found = holding(found)
    pairs = {(key, f"t/{peer.name}") for key, each in found.items() for peer in peers_of(each, found.get)}
    assert pairs == {(two, one) for one, two in pairs}

    def all_of(vpc: VPC) -> list[str]:
        return [*vpc.spec.cidrs, *(each.destination for each in vpc.spec.routes)]

    for vpc in found.values():
        near = [vpc, *peers_of(vpc, found.get)]
        for one, two in itertools.combinations(near, 2):
            assert first_shared(all_of(one), all_of(two)) is None


HELD = st.fixed_dictionaries({name: st.lists(st.sampled_from(SUBNETS), unique=True, max_size=3) for name in "abcd"})


@given(HELD, HELD)
def test_prefixes_of_many_are_shared_as_of_each_two(mine: dict[str, list[str]], theirs: dict[str, list[str]]) -> None:
    found = first_shared_of_each(mine, theirs)
    for key, its in mine.items():
        others = {other for other in theirs if other != key and first_shared(its, theirs[other])}
        assert (key in found) == bool(others)
        if key in found:
            other, shared = found[key]
            assert other in others
            assert shared in {*its, *theirs[other]}
            assert first_shared([shared], its)
            assert first_shared([shared], theirs[other])


@given(*[st.lists(st.sampled_from(SUBNETS), unique=True)] * 2)
def test_prefixes_lie_inside_as_ipaddress_says(some: list[str], others: list[str]) -> None:
    def is_within(one: Any, other: Any) -> bool:
        return one.version == other.version and bool(one.subnet_of(other))

    wanted = [each for each in some if any(is_within(ip_network(each), ip_network(other)) for other in others)]
    assert list(those_inside(some, others)) == wanted


@given(*[st.lists(st.sampled_from(SUBNETS), unique=True)] * 2)
def test_prefixes_are_shared_as_ipaddress_says(one: list[str], other: list[str]) -> None:
    pairs = [(ip_network(a), ip_network(b)) for a in one for b in other]
    overlapping = {(str(a), str(b)) for a, b in pairs if a.version == b.version and a.overlaps(b)}
    shared = first_shared(one, other)
    assert (shared is None) == (not overlapping)
    assert shared is None or any(shared in pair for pair in overlapping)


def test_rules_that_do_not_fit_into_the_object_isolate_their_ports_and_no_others() -> None:
    cidrs = [f"fd00:{n:x}:aaaa:bbbb:cccc:dddd:eeee::/112" for n in range(32)]
    long = [objects.rule(cidrs=cidrs, priority=n) for n in range(40)]
    large = decode(SecurityGroup, objects.group("t", "large", *long))
    small = decode(SecurityGroup, objects.group("t", "small", objects.rule()))
    ports = [endpoint(1, f"10.1.0.{2 * n + 1}", function=f"pf0vf{n + 10}", groups=(large,)) for n in range(1, 20)]
    a = view("t/a", 1, endpoint(1, "10.1.0.201", function="pf0vf99", groups=(small,)), *ports)
    spec = compiled(1, a)
    states = [each["state"] for each in spec["ports"]]
    assert states[0] == states[-1] == "Tenant"
    assert 0 < states.count("Isolated") < 19
    assert len(json.dumps(spec)) < 2**20
    assert all("rules" not in each for each in spec["ports"] if each["state"] == "Isolated")


def big_vpcs(count: int, dpus: int) -> list[VPCView]:
    """Of one tenant, all peers of each other, with 64 routes for each of their hosts, and a host on each DPU."""
    hosts = [
        endpoint(dpu, f"10.0.{dpu}.3", prefixes=tuple(f"10.{dpu}.{n}.0/24" for n in range(64)))
        for dpu in range(1, dpus + 1)
    ]
    keys = [f"big/{n}" for n in range(1, count + 1)]
    return [
        view(key, n, *(replace(each, place=replace(each.place, function=f"pf{n}")) for each in hosts),
             peers=tuple(each for each in keys if each != key))
        for n, key in enumerate(keys, 1)
    ]  # fmt: skip


def test_a_vpc_that_is_too_large_for_the_object_reaches_nothing_and_the_others_of_the_dpu_do() -> None:
    """Else nothing could be told to the DPU any more: no quarantine, and no other tenant's attachment."""
    vf = {"function": "pf0vf1"}
    small = view("small/a", 99, endpoint(1, "10.99.0.3", **vf), endpoint(2, "10.99.0.5", **vf))
    spec = compiled(1, *big_vpcs(8, 249), small)
    assert len(json.dumps(spec)) < 2**20
    assert domain(spec, 99)["remotes"] == {"10.255.0.2": ["10.99.0.5/32"]}
    states = {each["vni"]: each["state"] for each in spec["ports"]}
    assert states[99] == "Tenant"
    assert "Isolated" in states.values()
    for each in spec["vpcs"]:
        assert (states[each["vni"]] == "Tenant") == bool(each.get("members"))
        assert all(states[vni] == "Tenant" for vni in each.get("peerVnis", ()))


def test_many_small_vpcs_of_one_tenant_leave_room_for_a_larger_one_of_another() -> None:
    honest = [endpoint(dpu, f"10.99.{dpu}.3", function="pf0vf1") for dpu in range(1, 250)]
    spec = compiled(1, *big_vpcs(9, 249), view("small/a", 99, *honest))
    assert len(domain(spec, 99)["members"]) == 248


def test_a_peer_that_is_too_large_is_left_out_and_isolates_nobody() -> None:
    """Of the VPC that has named it; what its own hosts reach of each other stays."""
    hosts = [
        endpoint(dpu, f"10.{n}.{dpu}.3", function=f"pf{n}", prefixes=tuple(f"10.{dpu}.{k}.{n}/32" for k in range(64)))
        for dpu in range(4, 250)
        for n in (101, 102, 103)
    ]
    vf = {"function": "pf0vf1"}
    a = view("small/a", 99, endpoint(1, "10.99.0.3", **vf), endpoint(2, "10.99.0.5", **vf), peers=("big/b", "small/c"))
    b = view("big/b", 1, *hosts, peers=("small/a",))
    c = view("small/c", 98, endpoint(3, "10.98.0.3"), peers=("small/a",))
    spec = compiled(1, a, b, c)
    assert domain(spec, 99)["remotes"] == {"10.255.0.2": ["10.99.0.5/32"], "10.255.0.3": ["10.98.0.3/32"]}
    assert domain(spec, 99)["peerVnis"] == [98]
    assert [each["state"] for each in spec["ports"]] == ["Tenant"]
    views = {each.key: each for each in (a, b, c)}
    assert room_for("d1", views, with_remotes=True).left_out == {("small/a", "big/b")}
    assert not room_for("d1", views, with_remotes=False).left_out, "routes by EVPN are in no object"


def peering(tenant: str, first: int, vpcs: int, peers: int) -> list[VPCView]:
    """So many VPCs of a tenant with a port on the first DPU, and for each so many peers, which are other tenants'."""
    found = []
    for number in range(vpcs):
        vni, key = first + number * (peers + 1), f"{tenant}/{number}"
        names = [f"{other}/{tenant}-{number}" for other in (f"p{n}" for n in range(peers))]
        address = f"10.{vni >> 8}.{vni & 255}.3"
        found.append(view(key, vni, endpoint(1, address, function=f"pf1vf{vni}"), peers=tuple(names), cidrs=()))
        found += [view(name, vni + n, peers=(key,), cidrs=()) for n, name in enumerate(names, start=1)]
    return found


def test_the_peers_of_one_tenant_leave_room_for_those_of_another() -> None:
    """Whatever their names are."""
    for greedy, honest in (("aaa", "zzz"), ("zzz", "aaa")):
        many, few = peering(greedy, 1, 16, 16), peering(honest, 600, 1, 2)
        spec = compiled(1, *many, *few)
        assert len(spec["vpcs"]) == 256
        assert domain(spec, 600)["peerVnis"] == [601, 602]
        told = {each.key: domain(spec, each.vni)["peerVnis"] for each in many if each.key.startswith(greedy)}
        left_out = room_for("d1", {each.key: each for each in (*many, *few)}, with_remotes=True).left_out
        assert {key for key, _ in left_out} <= told.keys()
        assert sum(map(len, told.values())) + len(left_out) == 16 * 16, "each is told of or left out"


def test_two_tenants_with_more_peers_than_there_is_room_for_have_as_many() -> None:
    spec = compiled(1, *peering("aaa", 1, 12, 16), *peering("zzz", 600, 12, 16))
    told = {tenant: sum(len(each.get("peerVnis", ())) for each in spec["vpcs"] if each["vpc"].startswith(tenant))
            for tenant in ("aaa", "zzz")}  # fmt: skip
    assert told == {"aaa": (256 - 24) // 2, "zzz": (256 - 24) // 2}


def test_of_functions_those_that_were_assigned_have_room_and_the_rest_is_for_the_servers_tenant() -> None:
    others = [f"pf1vf{n}" for n in range(300)]
    assert room.has_room("pf9vf9", {"pf9vf9"}, others)
    assert room.has_room("pf1", {"pf9vf9"}, others[:254])
    assert not room.has_room("pf1", {"pf9vf9"}, others[:255]), "one is kept for the one that was assigned"
    assert room.has_room("pf1", (), others[:255])
    kept = [each for each in others if room.has_room(each, {"pf9vf9"}, others)]
    assert len(kept) == 255


def test_the_rules_of_one_tenant_isolate_no_port_of_another() -> None:
    cidrs = [f"fd00:{n:x}:aaaa:bbbb:cccc:dddd:eeee::/112" for n in range(32)]
    long = [objects.rule(cidrs=cidrs, priority=n) for n in range(40)]
    large = decode(SecurityGroup, objects.group("big", "large", *long))
    small = decode(SecurityGroup, objects.group("small", "small", objects.rule()))
    ports = [endpoint(1, f"10.1.0.{2 * n + 1}", function=f"pf0vf{n}", groups=(large,)) for n in range(1, 20)]
    honest = endpoint(1, "10.2.0.3", function="pf1", groups=(small,))
    spec = compiled(1, view("big/a", 1, *ports), view("small/a", 2, honest))
    states = {each["vni"]: each["state"] for each in spec["ports"]}
    assert (states[1], states[2]) == ("Isolated", "Tenant")
