"""Operations between two states, and their order. Pure."""

from __future__ import annotations

from dataclasses import replace

from provisioner.network.agent.diff import differences
from provisioner.network.agent.model.state import (
    HOME,
    Address,
    Chain,
    FdbEntry,
    Hook,
    Link,
    Neighbour,
    PlaceState,
    Route,
    Sysctl,
)
from provisioner.network.agent.operations import (
    AddLink,
    AddNamespace,
    ChangeLink,
    DeleteLink,
    DeleteNamespace,
    LoadChains,
    MoveLink,
    Put,
    Remove,
    SetSysctl,
)
from provisioner.network.agent.rules.canonical import rule
from provisioner.network.agent.rules.expressions import ACCEPT, DROP
from tests.network.agent.specs import ONE, port, spec, vpc
from tests.network.agent.test_desired import situation, wanted

DOMAIN = "vpc-10001"
ROUTE = Route("10.1.0.3/32", "pf0hpf", metric=64)
GUARD = Chain("netdev", "from_host_pf0", Hook("ingress", -500, "drop", "pf0hpf"))
PORT = Link("pf0hpf", "port", mtu_bytes=1500, mac="52:54:00:00:00:01")


def test_what_agrees_needs_nothing() -> None:
    places = wanted(spec([vpc()], [port("10.1.0.3")]), situation())
    assert differences(places, places) == []


def test_a_port_arrives_down_and_comes_up_only_after_its_rules() -> None:
    """Nothing that the host sends may be forwarded before anti-spoofing is in force, nor any route be missing later."""
    places = wanted(spec([vpc(remotes={"192.0.2.2": ["10.1.0.5/32"]})], [port("10.1.0.3")]), situation())
    operations = differences(places, {HOME: PlaceState(links=frozenset({PORT, replace(PORT, name="pf1hpf")}))})
    there = [each for each in operations if getattr(each, "place", None) == DOMAIN or isinstance(each, MoveLink)]
    kinds = [type(each) for each in there]
    first = {kind: kinds.index(kind) for kind in (AddNamespace, SetSysctl, MoveLink, LoadChains, AddLink, Put)}
    assert sorted(first, key=lambda kind: first[kind]) == [
        AddNamespace,
        SetSysctl,
        MoveLink,
        LoadChains,
        AddLink,
        Put,
    ]
    assert there[first[MoveLink]] == MoveLink(HOME, "pf0hpf", DOMAIN)
    up = operations.index(ChangeLink(DOMAIN, "pf0hpf", up=True))
    assert operations.index(there[first[LoadChains]]) < up < operations.index(there[first[Put]])
    entries = [each.entry for each in operations if isinstance(each, Put)]
    neighbour = next(each for each in entries if isinstance(each, Neighbour) and each.device == "vx10001")
    route = next(each for each in entries if isinstance(each, Route) and each.device == "vx10001")
    assert entries.index(neighbour) < entries.index(route)


def test_a_port_that_goes_home_is_isolated_there_before_it_comes_up() -> None:
    before = wanted(spec([vpc()], [port("10.1.0.3")]), situation())
    after = wanted(spec([], []), situation())
    operations = differences(after, before)
    assert MoveLink(DOMAIN, "pf0hpf", HOME) in operations
    assert DeleteLink(DOMAIN, "vx10001") in operations, "a namespace ends some time after its name"
    assert operations[-1] == DeleteNamespace(DOMAIN)
    load = next(at for at, each in enumerate(operations) if isinstance(each, LoadChains))
    assert operations.index(MoveLink(DOMAIN, "pf0hpf", HOME)) < load
    assert load < operations.index(ChangeLink(HOME, "pf0hpf", up=True))
    assert not [each for each in operations if isinstance(each, Remove)], "what hangs on a device goes with it"


def test_a_port_leaves_its_vrf_only_once_it_is_isolated_and_joins_it_behind_its_guard() -> None:
    """Outside of its VRF it would be in the DPU's own network."""
    inside = wanted(spec([vpc()], [port("10.1.0.3")]), situation("vrf"))
    outside = wanted(spec([vpc()], []), situation("vrf"))
    for target, before, master in ((outside, inside, ""), (inside, outside, "vpc10001")):
        operations = differences(target, before)
        load = next(at for at, each in enumerate(operations) if isinstance(each, LoadChains))
        changes = [at for at, each in enumerate(operations) if isinstance(each, ChangeLink) and each.master == master]
        assert load < changes[0]
        assert not [each for each in operations if isinstance(each, MoveLink | AddNamespace | DeleteNamespace)]


def one(**what: object) -> dict[str, PlaceState]:
    return {HOME: replace(PlaceState(links=frozenset({PORT})), **what)}  # type: ignore[arg-type]


def test_a_route_that_leads_elsewhere_is_replaced_and_not_deleted_first() -> None:
    other = replace(ROUTE, device="vx10001", gateway=ONE)
    assert differences(one(routes=frozenset({ROUTE})), one(routes=frozenset({other}))) == [Put(HOME, ROUTE)]


def test_a_foreign_route_with_another_metric_is_removed() -> None:
    foreign = replace(ROUTE, metric=1)
    assert differences(one(routes=frozenset({ROUTE})), one(routes=frozenset({ROUTE, foreign}))) == [
        Remove(HOME, foreign)
    ]


def test_a_neighbour_is_replaced_an_fdb_entry_gives_way_first() -> None:
    meant, other = (
        Neighbour("pf0hpf", "10.1.0.3", "52:54:00:00:00:01"),
        Neighbour("pf0hpf", "10.1.0.3", "52:54:00:00:00:02"),
    )
    assert differences(one(neighbours=frozenset({meant})), one(neighbours=frozenset({other}))) == [Put(HOME, meant)]
    good, bad = FdbEntry("vx1", "02:00:00:00:00:01", ONE), FdbEntry("vx1", "02:00:00:00:00:01", "192.0.2.66")
    assert differences(one(fdb=frozenset({good})), one(fdb=frozenset({bad}))) == [Remove(HOME, bad), Put(HOME, good)]


def test_a_setting_an_address_and_rules_that_differ_are_set() -> None:
    setting, address = Sysctl("ipv4/conf/pf0hpf/arp_ignore", "1"), Address("pf0hpf", "10.1.0.2", 32)
    rules = frozenset({replace(GUARD, rules=(rule(DROP),))})
    changed = frozenset({replace(GUARD, rules=(rule(ACCEPT),))})
    operations = differences(
        one(sysctls=frozenset({setting}), addresses=frozenset({address}), chains=rules),
        one(sysctls=frozenset({replace(setting, value="0")}), chains=changed),
    )
    assert operations == [LoadChains(HOME, rules, changed), SetSysctl(HOME, setting), Put(HOME, address)]


def test_a_vxlan_device_of_another_making_is_made_anew() -> None:
    meant = Link("vx10001", "vxlan", mtu_bytes=1450, mac="02:00:00:00:00:01", vni=10001, local=ONE)
    for other in (replace(meant, vni=10002), replace(meant, local="192.0.2.66"), replace(meant, vni=None)):
        operations = differences({HOME: PlaceState(frozenset({meant}))}, {HOME: PlaceState(frozenset({other}))})
        assert operations[:2] == [DeleteLink(HOME, "vx10001"), AddLink(HOME, meant)]
        assert ChangeLink(HOME, "vx10001", up=True) in operations


def test_a_link_between_peers_that_lost_an_end_is_made_anew_as_a_whole() -> None:
    a = Link("p1-2", "veth", mtu_bytes=1450, mac="02:01:00:00:00:01", peer="p2-1", peer_place="b")
    b = Link("p2-1", "veth", mtu_bytes=1450, mac="02:01:00:00:00:02", peer="p1-2", peer_place="a")
    meant = {"a": PlaceState(frozenset({a})), "b": PlaceState(frozenset({b}))}
    seen = replace(a, peer=None, peer_place=None)
    operations = differences(meant, {"a": PlaceState(frozenset({seen})), "b": PlaceState()})
    assert operations[:2] == [DeleteLink("a", "p1-2"), AddLink("a", a)]
    assert len([each for each in operations if isinstance(each, AddLink)]) == 1


def test_operations_say_what_they_do_in_the_words_of_ip() -> None:
    route = Route("10.1.0.5/32", "vx10001", "192.0.2.2", table=10001, metric=64, mtu_bytes=1450)
    said = [
        Put(DOMAIN, route).words(),
        Remove(HOME, FdbEntry("vx1", "00:00:00:00:00:00", ONE)).words(),
        SetSysctl(DOMAIN, Sysctl("ipv4/ip_forward", "1")).words(),
        ChangeLink(HOME, "pf0hpf", up=False, mtu_bytes=1500, master="").words(),
    ]
    assert said == [
        f"ip -n {DOMAIN} route replace 10.1.0.5/32 via 192.0.2.2 dev vx10001 onlink table 10001 metric 64 mtu 1450",
        f"bridge fdb delete 00:00:00:00:00:00 dev vx1 dst {ONE} self permanent",
        f"ip netns exec {DOMAIN} sysctl -w net.ipv4.ip_forward=1",
        "ip link set pf0hpf mtu 1500 nomaster down",
    ]
