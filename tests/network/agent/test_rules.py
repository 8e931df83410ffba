"""Rules: one form for what nft may print differently, transactions without a gap, and nft prints what is meant."""

from __future__ import annotations

import json

import pytest

from provisioner.api.network.dpu_network import PortRule
from provisioner.network.agent import nft
from provisioner.network.agent.model.naming import TABLE
from provisioner.network.agent.model.ports import read_port
from provisioner.network.agent.model.state import Chain, Hook
from provisioner.network.agent.netlink.tables import chain_devices
from provisioner.network.agent.rules.canonical import canonical
from provisioner.network.agent.rules.domain import DomainDevices, domain_chains
from provisioner.network.agent.rules.port import guarded_port, isolated_port
from provisioner.network.agent.rules.security_group import egress_chain, mark_of
from provisioner.network.agent.rules.tables import FAMILIES, read_tables, removal, replacement
from provisioner.network.agent.rules.underlay import isolation_chains, underlay_chains
from tests.network.agent.rack import Rack
from tests.network.agent.specs import ONE, port


def is_at(right: object) -> list[dict[str, object]]:
    return [{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": right}}]


SAME = [
    ("10.1.0.3", {"prefix": {"addr": "10.1.0.3", "len": 32}}),
    ({"set": ["10.1.0.2", "10.1.0.3"]}, {"prefix": {"addr": "10.1.0.2", "len": 31}}),
    ({"set": ["10.1.0.1", "10.1.0.2"]}, {"range": ["10.1.0.1", "10.1.0.2"]}),
    ({"set": ["10.1.0.9", "10.1.0.1"]}, {"set": ["10.1.0.1", "10.1.0.9"]}),
    ({"set": [80, 81, 443]}, {"set": [443, {"range": [80, 81]}]}),
    ({"set": ["fd00::"]}, "fd00::"),
    ({"set": ["b", "a"]}, {"set": ["a", "b"]}),
]
OTHERS = [
    ("10.1.0.3", "10.1.0.4"),
    ({"set": ["10.1.0.2", "10.1.0.4"]}, {"range": ["10.1.0.2", "10.1.0.4"]}),
    ({"set": [80, 443]}, {"set": [80]}),
    ({"set": ["a"]}, {"set": ["a", "b"]}),
    ({"prefix": {"addr": "10.0.0.0", "len": 8}}, {"prefix": {"addr": "10.0.0.0", "len": 9}}),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_what_says_the_same_has_one_form(one: object, other: object) -> None:
    assert canonical(is_at(one)) == canonical(is_at(other))


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_what_says_something_else_has_another_form(one: object, other: object) -> None:
    assert canonical(is_at(one)) != canonical(is_at(other))


def test_the_target_of_a_solicitation_has_one_form_whether_nft_knows_it_or_not() -> None:
    def asks_for(left: dict[str, object], right: object) -> str:
        return canonical([{"match": {"op": "==", "left": {"payload": left}, "right": right}}])

    before = asks_for({"base": "th", "offset": 64, "len": 128}, "0xfd000001000000000000000000000002")
    assert asks_for({"protocol": "icmpv6", "field": "taddr"}, "fd00:1::2") == before
    assert asks_for({"protocol": "icmpv6", "field": "taddr"}, "fd00:1::3") != before


def test_the_order_of_expressions_and_verdicts_counts() -> None:
    assert canonical([{"accept": None}]) != canonical([{"drop": None}])
    vmap = {
        "vmap": {"key": {"meta": {"key": "oifname"}}, "data": {"set": [["a", {"accept": None}], ["b", {"drop": None}]]}}
    }
    swapped = {
        "vmap": {"key": {"meta": {"key": "oifname"}}, "data": {"set": [["b", {"accept": None}], ["a", {"drop": None}]]}}
    }
    assert canonical([vmap]) != canonical([swapped])


GUARD = Chain("netdev", "from_host_pf0", Hook("ingress", -500, "drop", "pf0hpf"))


def words(commands: dict[str, list[dict[str, dict[str, dict[str, object]]]]]) -> list[str]:
    return [
        f"{verb} {kind} {what.get('name', what.get('chain', ''))}"
        for command in commands["nftables"]
        for verb, its in command.items()
        for kind, what in its.items()
    ]


def test_a_base_chain_that_stays_is_not_made_anew() -> None:
    """A new one would be asked, with its policy to drop, before its rules are in force."""
    old = Chain("netdev", "from_host_pf1", Hook("ingress", -500, "drop", "pf1hpf"))
    assert words(replacement([GUARD], [GUARD, old])) == [
        f"add table {TABLE}",
        f"flush table {TABLE}",
        "add chain from_host_pf1",
        "delete chain from_host_pf1",
        "add chain from_host_pf0",
    ]


def test_a_base_chain_of_another_hook_gives_way() -> None:
    elsewhere = Chain("netdev", "from_host_pf0", Hook("ingress", -500, "accept", "pf0hpf"))
    said = words(replacement([GUARD], [elsewhere]))
    assert said.index("delete chain from_host_pf0") < len(said) - 1 - said[::-1].index("add chain from_host_pf0")


def test_the_number_of_a_rule_is_its_own_and_lasts() -> None:
    one = PortRule(direction="Egress", action="Allow", protocol="TCP", ports=("22",), stateful=True)
    two = PortRule(direction="Egress", action="Allow", protocol="TCP", ports=("23",), stateful=True)
    first, second = read_port(port("10.1.0.3", rules=[one, two])).filters
    again = read_port(port("10.1.0.9", rules=[two, one])).filters[1]
    assert mark_of(first) == mark_of(again) != mark_of(second)
    assert 0 < mark_of(first) < 1 << 15
    other_side = read_port(
        port("10.1.0.3", rules=[PortRule(direction="Ingress", action="Allow", stateful=True)])
    ).filters[0]
    assert mark_of(other_side) & 0x7FFF == 0 != mark_of(other_side)


def values_of(chain: Chain, *fields: str) -> list[list[str]]:
    """Of each rule that lets pass, what those fields of its packets must be, in words."""
    passing = [json.loads(each.source) for each in chain.rules if "drop" not in each.source]
    return [
        [
            json.dumps(its["match"]["right"])
            for its in each
            if its.get("match", {}).get("op") == "==" and its["match"]["left"].get("payload", {}).get("field") in fields
        ]
        for each in passing
    ]


def test_a_host_sends_by_its_own_addresses_alone() -> None:
    """The kernel behind the port drops another one's too; this is before anything of the DPU sees it."""
    guard = guarded_port(read_port(port("10.1.0.3", "fd00:1::3")), "pf0hpf")
    sources = values_of(guard, "saddr", "saddr ip")
    assert len(sources) >= 6
    for of_rule in sources:
        assert any("10.1.0.3" in source or "fd00:1::3" in source for source in of_rule), of_rule


def test_ranges_of_ports_that_overlap_are_one_with_the_higher_end() -> None:
    inner = PortRule(direction="Egress", action="Allow", protocol="TCP", ports=("80-90", "82-84", "91"))
    assert values_of(egress_chain(read_port(port("10.1.0.3", rules=[inner]))), "dport") == [['{"range": [80, 91]}']]


def test_connections_of_each_domain_have_a_zone_of_their_own() -> None:
    stateful = PortRule(direction="Egress", action="Allow", stateful=True)
    domains = [
        DomainDevices(vni, ((read_port(port("10.1.0.3", vni=vni, rules=[stateful])), f"p{vni}"),), f"vx{vni}", ())
        for vni in (1, 2, 1 + 0xFFFF, 1 + 2 * 0xFFFF)
    ]
    sources = domain_chains(domains, in_vrfs=True)[0]
    zones = [its["mangle"]["value"] for each in sources.rules for its in json.loads(each.source) if "mangle" in its]
    assert len(set(zones)) == len(domains)
    assert all(1 <= zone <= 0xFFFF for zone in zones)


EVERY_KIND_OF_RULE = [
    PortRule(
        direction="Ingress",
        action="Allow",
        protocol="TCP",
        ports=("22", "80-90", "91"),
        cidrs=("10.0.0.0/8", "10.1.0.0/24", "fd00::/64"),
        stateful=True,
    ),
    PortRule(direction="Ingress", action="Deny", protocol="ICMP", cidrs=("10.9.0.0/16", "fd00::/64")),
    PortRule(direction="Ingress", action="Allow", protocol="ICMP"),
    PortRule(direction="Ingress", action="Allow", protocol="UDP", cidrs=("10.9.0.1/32", "10.9.0.2/32")),
    PortRule(direction="Ingress", action="Allow", protocol="UDP", ports=("53",)),
    PortRule(direction="Egress", action="Allow", stateful=True),
    PortRule(direction="Egress", action="Deny", cidrs=("10.3.0.0/16", "10.4.0.0/17")),
    PortRule(direction="Egress", action="Allow", protocol="TCP"),
]


@pytest.mark.parametrize("in_vrfs", [False, True])
def test_nft_prints_every_kind_of_rule_as_it_is_meant(network: Rack, in_vrfs: bool) -> None:
    """Or an agent would find the kernel to differ for ever."""
    dpu = network.dpu(ONE, ("pf0", "pf1"))
    behind = ("192.168.0.0/24", "192.168.1.0/24", "fd00:9::/48")
    one = read_port(port("10.1.0.3", "fd00:1::3", rules=EVERY_KIND_OF_RULE, prefixes=behind))
    two = read_port(port("10.1.0.7", function="pf1"))
    devices = [DomainDevices(10001, ((one, "pf0hpf"), (two, "pf1hpf")), "vx10001", ("p002711-002712",))]
    meant = {
        guarded_port(one, "pf0hpf"),
        isolated_port("pf1", "pf1hpf"),
        *domain_chains(devices, in_vrfs=in_vrfs),
        *underlay_chains(ONE, {10001: ("192.0.2.2", "192.0.2.3"), 10002: (), 10003: ("192.0.2.2",)}),
        *isolation_chains(["pf0hpf"]),
    }

    def load_twice_and_read() -> None:
        nft.load(replacement(meant, ()))
        nft.load(replacement(meant, meant))
        read, marks = read_tables(nft.dump(), chain_devices(TABLE))
        by_name = {chain.name: chain for chain in read}
        for chain in meant:
            assert by_name.pop(chain.name) == chain
        assert (by_name, marks) == ({}, set())
        nft.load(removal(FAMILIES))
        assert nft.dump() == []

    dpu.inside(load_twice_and_read)
