"""What the kernel shall have for a spec: pure, for namespaces and for VRFs, which not every kernel has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import pytest

from provisioner.api.network.dpu_network import DPUNetworkSpec, PortRule
from provisioner.network.agent.desired import UNREACHABLE_METRIC, released_state, wanted_state
from provisioner.network.agent.model.naming import (
    is_ours,
    link_local,
    namespace_name,
    peer_link_name,
    router_address,
    router_mac,
    routing_table,
    solicited_node,
    vrf_name,
    vxlan_name,
)
from provisioner.network.agent.model.state import HOME, Address, FdbEntry, Link, Neighbour, PlaceState, Route
from provisioner.network.agent.preflight import examine
from provisioner.network.agent.situation import DpuInputs, Underlay
from tests.network.agent.specs import BLUE, ONE, RED, TWO, port, spec, vpc

HERE = ("10.1.0.3", "fd00:1::3")


def situation(backend: Literal["vrf", "netns"] = "netns", **other: Any) -> DpuInputs:
    known: dict[str, Any] = {
        "backend": backend,
        "owner": "",
        "interfaces": {"pf0": "pf0hpf", "pf1": "pf1hpf"},
        "largest_mtus": {"pf0": 65535, "pf1": 65535},
        "underlay": Underlay("uplink", 9000),
        "has_conntrack": True,
    }
    return DpuInputs(**known | other)


def wanted(what: DPUNetworkSpec, where: DpuInputs) -> dict[str, PlaceState]:
    return wanted_state(examine(what, where), where)


def chains(state: PlaceState) -> Mapping[str, str]:
    return {chain.name: "\n".join(rule.text for rule in chain.rules) for chain in state.chains}


def test_a_domain_in_a_namespace() -> None:
    places = wanted(spec([vpc(remotes={TWO: ["10.1.0.5/32", "fd00:1::5/128"]})], [port(*HERE)]), situation())
    assert sorted(places) == [HOME, "vpc-10001"]
    domain = places["vpc-10001"]
    assert domain.links == {
        Link("lo", "other"),
        Link("pf0hpf", "port", mtu_bytes=9216, mac="02:00:5e:00:01:01"),
        Link("vx10001", "vxlan", mtu_bytes=1450, mac="02:00:c0:00:02:01", vni=BLUE, local=ONE),
    }
    assert domain.addresses == {Address("pf0hpf", "10.1.0.2", 32), Address("pf0hpf", "fd00:1::2", 128)}
    assert domain.routes == {
        Route("10.1.0.3/32", "pf0hpf", metric=64, mtu_bytes=1450),
        Route("fd00:1::3/128", "pf0hpf", metric=64, mtu_bytes=1450),
        Route("10.1.0.5/32", "vx10001", TWO, metric=64),
        Route("fd00:1::5/128", "vx10001", "fe80::c000:202", metric=64),
    }
    assert domain.neighbours == {
        Neighbour("pf0hpf", "10.1.0.3", "52:54:00:00:01:00"),
        Neighbour("pf0hpf", "fd00:1::3", "52:54:00:00:01:00"),
        Neighbour("vx10001", TWO, "02:00:c0:00:02:02"),
        Neighbour("vx10001", "fe80::c000:202", "02:00:c0:00:02:02"),
    }
    assert domain.fdb == {FdbEntry("vx10001", "02:00:c0:00:02:02", TWO)}
    assert places[HOME].links == {Link("pf1hpf", "port")}, "what is not in the spec is isolated at home"


def test_the_same_domain_in_a_vrf_is_at_home_in_a_table_of_its_own() -> None:
    what = spec([vpc(remotes={TWO: ["10.1.0.5/32", "fd00:1::5/128"]})], [port(*HERE)])
    (home,) = wanted(what, situation("vrf")).values()
    assert home.links == {
        Link("vpc10001", "vrf", table=BLUE),
        Link("pf0hpf", "port", mtu_bytes=9216, mac="02:00:5e:00:01:01", master="vpc10001"),
        Link("vx10001", "vxlan", mtu_bytes=1450, mac="02:00:c0:00:02:01", master="vpc10001", vni=BLUE, local=ONE),
        Link("pf1hpf", "port"),
    }
    unreachable = {
        Route(default, table=BLUE, metric=UNREACHABLE_METRIC, kind="unreachable") for default in ("0.0.0.0/0", "::/0")
    }
    assert unreachable < home.routes, "or what has no route is looked for in the DPU's own table"
    namespaced = wanted(what, situation())["vpc-10001"]
    assert {(each.destination, each.gateway, each.device) for each in home.routes - unreachable} == {
        (each.destination, each.gateway, each.device) for each in namespaced.routes
    }
    assert {each.table for each in home.routes} == {BLUE}
    assert (home.neighbours, home.fdb, home.addresses) == (
        namespaced.neighbours,
        namespaced.fdb,
        namespaced.addresses,
    )


def test_in_vrfs_packets_are_told_apart_by_the_device_below_the_vrf_and_others_are_let_alone() -> None:
    what = spec([vpc(BLUE), vpc(RED)], [port(*HERE), port(*HERE, function="pf1", vni=RED)])
    (home,) = wanted(what, situation("vrf")).values()
    rules = chains(home)
    assert '"sdifname"' in rules["forward"]
    assert '"iifname"' not in rules["forward"].splitlines()[0]
    policies = {chain.name: chain.hook.policy for chain in home.chains if chain.hook is not None}
    assert (policies["forward"], policies["input"]) == ("accept", "accept")
    by_others = [line for line in rules["forward"].splitlines() if line.endswith('{"drop":null}]')]
    assert ['"iifname"' in by_others[0], '"oifname"' in by_others[1]] == [True, True]
    assert all("pf0hpf" in line and "vx10002" in line for line in by_others), (
        "nothing else is forwarded to or from them"
    )
    namespaced = wanted(what, situation())["vpc-10001"]
    policies = {chain.name: chain.hook.policy for chain in namespaced.chains if chain.hook is not None}
    assert (policies["forward"], policies["input"]) == ("drop", "drop")


def test_in_vrfs_connections_of_tenants_with_the_same_addresses_have_zones_of_their_own() -> None:
    rules = [PortRule(direction="Egress", action="Allow", stateful=True)]
    what = spec(
        [vpc(BLUE), vpc(BLUE + 0xFFFF)],
        [port(*HERE, rules=rules), port(*HERE, function="pf1", vni=BLUE + 0xFFFF, rules=rules)],
    )
    (home,) = wanted(what, situation("vrf")).values()
    zones = [
        expression["mangle"]["value"]
        for chain in home.chains
        if chain.name == "sources"
        for rule in chain.rules
        for expression in json.loads(rule.text)
        if "mangle" in expression
    ]
    assert len(zones) == len(set(zones)) == 2


def test_connections_are_tracked_only_where_a_stateful_rule_is() -> None:
    for stateful, tracked in ((False, False), (True, True)):
        rules = [
            PortRule(direction="Egress", action="Allow", stateful=stateful),
            PortRule(direction="Ingress", action="Deny"),
        ]
        for backend in ("netns", "vrf"):
            places = wanted(spec([vpc()], [port(*HERE, rules=rules)]), situation(backend))  # type: ignore[arg-type]
            said = "\n".join(rule.text for state in places.values() for chain in state.chains for rule in chain.rules)
            assert ('"ct"' in said) is tracked


def test_peers_are_joined_by_a_link_and_reach_the_others_local_ports_by_it() -> None:
    vpcs = [vpc(BLUE, peers=(RED,)), vpc(RED, peers=(BLUE,), mtu=1400)]
    ports = [port(*HERE), port("10.2.0.3", function="pf1", vni=RED, prefixes=("192.168.7.0/24",))]
    places = wanted(spec(vpcs, ports), situation())
    blue, red = places["vpc-10001"], places["vpc-10002"]
    (link,) = (each for each in blue.links if each.kind == "veth")
    assert link == Link(
        "p002711-002712",
        "veth",
        mtu_bytes=1400,
        mac="02:01:00:00:27:11",
        peer="p002712-002711",
        peer_place="vpc-10002",
    )
    assert {each.destination for each in blue.routes if each.device == link.name} == {"10.2.0.3/32", "192.168.7.0/24"}
    assert Neighbour("p002711-002712", ONE, "02:01:00:00:27:12") in blue.neighbours
    assert {each.destination for each in red.routes if each.device == "p002712-002711"} == {
        "10.1.0.3/32",
        "fd00:1::3/128",
    }
    assert '"vx10001"' not in chains(red).get("from_p002712-002711", ""), "nothing passes through"
    assert "vx" not in chains(blue)["from_p002711-002712"]


@pytest.mark.parametrize("state", ["Isolated", "Quarantined"])
def test_a_port_that_may_not_send_is_at_home_and_nothing_leads_to_it(state: Any) -> None:
    places = wanted(spec([vpc()], [port(*HERE, state=state)]), situation())
    assert {link.name for link in places[HOME].links} == {"pf0hpf", "pf1hpf"}
    assert places["vpc-10001"].routes == frozenset()
    drops = next(chain for chain in places[HOME].chains if chain.name == "from_host_pf0")
    assert (drops.rules, drops.hook is not None and drops.hook.policy) == ((), "drop")


def test_of_the_underlay_only_members_are_heard_each_in_its_vni() -> None:
    what = spec([vpc(BLUE, remotes={TWO: []}), vpc(RED, members=())], [])
    rules = chains(wanted(what, situation())[HOME])
    assert rules["vni_10001"].count(TWO) == 1
    assert rules["vni_10002"] == '[{"drop":null}]'
    assert rules["vxlan_packets"].endswith('[{"drop":null}]')


def test_without_a_vpc_no_vxlan_packet_is_taken() -> None:
    rules = chains(wanted(spec([], []), situation())[HOME])
    assert rules["vxlan_packets"].splitlines()[-1] == '[{"drop":null}]'
    assert "vmap" not in rules["vxlan_packets"]


def test_released_is_nothing_but_ports_that_are_down() -> None:
    mac = "02:02:00:00:00:01"
    (home,) = released_state({"pf0hpf": None, "pf1hpf": mac}).values()
    assert home.links == {
        Link("pf0hpf", "port", mtu_bytes=1500, up=False),
        Link("pf1hpf", "port", mtu_bytes=1500, mac=mac, up=False),
    }
    assert home.chains == frozenset()


PROBLEMS = [
    ("a VPC that is missing", {"vni": 10009}, "VPCMissing", "10009"),
    ("a hardware address", {"mac": "no"}, "SpecUnreadable", "not a unicast MAC"),
    ("a multicast hardware address", {"mac": "01:00:5e:00:00:01"}, "SpecUnreadable", "not a unicast MAC"),
    ("an address", {"addresses": ("10.1.0.300",)}, "SpecUnreadable", "10.1.0.300"),
    ("a link-local address", {"addresses": ("169.254.0.3",)}, "SpecUnreadable", "no address that a port can have"),
    ("a prefix", {"prefixes": ("10.1.0.1/24",)}, "SpecUnreadable", "10.1.0.1/24"),
    ("a prefix of another family", {"prefixes": ("fd00::/64",)}, "SpecUnreadable", "family"),
    ("a range of ports", {"rules": [{"ports": ("9-1",), "protocol": "TCP"}]}, "SpecUnreadable", "9-1"),
    ("ports of ICMP", {"rules": [{"ports": ("9",), "protocol": "ICMP"}]}, "SpecUnreadable", "ICMP"),
    ("the other side", {"rules": [{"cidrs": ("10.0.0.0/33",)}]}, "SpecUnreadable", "10.0.0.0/33"),
]


@pytest.mark.parametrize(("what", "changes", "reason", "words"), PROBLEMS, ids=[each[0] for each in PROBLEMS])
def test_what_cannot_be_enforced_isolates_its_port_alone(
    what: str, changes: dict[str, Any], reason: str, words: str
) -> None:
    assert what
    broken = port(*changes.get("addresses", ("10.1.0.3",)), vni=changes.get("vni", BLUE))
    rules = tuple(PortRule(direction="Egress", action="Allow", **each) for each in changes.get("rules", ()))
    fields = {
        **{name: getattr(broken, name) for name in broken.__dataclass_fields__},
        "prefixes": tuple(changes.get("prefixes", ())),
        "mac_address": changes.get("mac", broken.mac_address),
        "gateways": ("10.1.0.2",),
        "rules": rules,
    }
    readable = examine(spec([vpc()], [type(broken)(**fields), port("10.1.0.7", function="pf1")]), situation())
    (problem,) = readable.problems
    assert (problem.reason, problem.functions) == (reason, ("pf0",))
    assert words in problem.message
    assert readable.functions == {"pf1"}


def test_a_dpu_without_its_address_is_told_and_its_ports_still_reach_each_other() -> None:
    readable = examine(spec([vpc()], [port(*HERE)]), situation(underlay=Underlay(None, None, has_address=False)))
    assert [(each.reason, each.functions) for each in readable.problems] == [("UnderlayAddressMissing", ())]
    assert readable.functions == {"pf0"}


def test_an_underlay_that_was_named_and_is_not_there_is_told() -> None:
    readable = examine(spec([vpc()], [port(*HERE)]), situation(underlay=Underlay("uplink9", None, exists=False)))
    assert [(each.reason, each.functions) for each in readable.problems] == [("UnderlayMissing", ())]


def test_an_address_on_the_loopback_has_no_mtu_to_compare() -> None:
    readable = examine(spec([vpc(mtu=9166)], [port(*HERE)]), situation(underlay=Underlay("lo", None)))
    assert readable.problems == ()


def test_names_fit_into_the_kernels_fifteen_characters() -> None:
    most = 16777215
    for name in (vxlan_name(most), vrf_name(most), peer_link_name(most, most)):
        assert len(name) <= 15
        assert is_ours(name)
    assert not any(is_ours(each) for each in ("vx0", "vxlan1", "vx10001a", "vpc", "p0hpf", "pf0hpf", "p1-2"))
    assert namespace_name(BLUE, "") == "vpc-10001"
    assert namespace_name(BLUE, "dpu-1") == "vpc-10001.dpu-1"


def test_tables_of_the_kernels_own_are_no_vpcs() -> None:
    assert routing_table(10001) == 10001
    assert routing_table(254) == 254 + (1 << 24)


def test_addresses_that_are_made_of_others() -> None:
    assert router_mac("192.0.2.1") == "02:00:c0:00:02:01"
    assert (router_address("192.0.2.1", 4), router_address("192.0.2.1", 6)) == ("192.0.2.1", "fe80::c000:201")
    assert link_local("52:54:00:00:01:00") == "fe80::5054:ff:fe00:100"
    assert solicited_node("fd00:1::2") == ("ff02::1:ff00:2", "33:33:ff:00:00:02")
