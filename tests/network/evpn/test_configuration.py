"""What bgpd is told: whole files, and what leads from one configuration to the next."""

from __future__ import annotations

import itertools

import pytest

from provisioner.network.evpn.configuration import agree, commands, read_running, to_refresh
from provisioner.network.evpn.identity import (
    communities,
    distinguisher,
    ethernet_tag,
    read_communities,
    read_distinguisher,
)
from provisioner.network.evpn.reflector import ReflectorClient, reflector
from provisioner.network.evpn.speaker import Fabric, OwnRoute, own_routes, speaker
from tests.golden_files import assert_golden
from tests.network.agent.specs import BLUE, ONE, RED, TWO, port, spec, vpc
from tests.network.evpn.start import render

FABRIC = Fabric(asn=64512, reflectors=("192.0.2.250", "192.0.2.251"))
ROUTES = [
    OwnRoute(BLUE, "10.1.0.3/32"),
    OwnRoute(BLUE, "10.1.0.5/32"),
    OwnRoute(BLUE, "fd00:1::3/128"),
    OwnRoute(RED, "10.1.0.3/32"),
    OwnRoute(RED, "172.16.0.0/16"),
]
CLIENTS = [
    ReflectorClient(
        ONE,
        frozenset({BLUE}),
        frozenset({BLUE, RED}),
    ),
    ReflectorClient(TWO, frozenset({RED}), frozenset({RED})),
]


def test_what_a_dpu_announces() -> None:
    assert_golden("evpn/speaker.conf", render(speaker(ONE, FABRIC, ROUTES)))


def test_what_a_reflector_takes_and_tells() -> None:
    assert_golden("evpn/reflector.conf", render(reflector("192.0.2.250", FABRIC, CLIENTS)))


def test_only_what_is_behind_ports_that_pass_is_announced() -> None:
    told = spec(
        [vpc(), vpc(RED)],
        [
            port("10.1.0.3", "fd00:1::3", prefixes=("172.16.0.0/16",)),
            port("10.1.0.7", function="pf1", vni=RED),
            port("10.1.0.9", function="pf2", state="Quarantined"),
        ],
    )
    assert own_routes(told, ["pf0", "pf2"]) == [
        OwnRoute(BLUE, "10.1.0.3/32"),
        OwnRoute(BLUE, "172.16.0.0/16"),
        OwnRoute(BLUE, "fd00:1::3/128"),
    ]
    assert own_routes(told, []) == []


def test_what_bgpd_prints_of_a_configuration_is_that_configuration() -> None:
    for wanted in (speaker(ONE, FABRIC, ROUTES), reflector("192.0.2.250", FABRIC, CLIENTS)):
        printed = []
        for section, lines in wanted.items():
            printed += [" " * depth + line for depth, line in enumerate(section)]
            printed += [" " * len(section) + line for line in reversed(lines)]
            printed += [" " * (depth - 1) + "exit" for depth in range(len(section), 0, -1)] + ["!"]
        running = read_running("\n".join(["frr version 8.4.4", "hostname vm", "!", *printed, "end"]))
        assert agree(wanted, running)
        assert commands(wanted, running) == []
        assert to_refresh(wanted, running) == []


def test_a_line_more_or_less_is_seen() -> None:
    wanted = speaker(ONE, FABRIC, ROUTES)
    for section, lines in wanted.items():
        for left in range(len(lines)):
            fewer = {**wanted, section: lines[:left] + lines[left + 1 :]}
            assert not agree(wanted, fewer)
            assert commands(wanted, fewer) != []
            assert commands(fewer, wanted) != []


def test_an_address_that_comes_and_one_that_goes_touch_nothing_else() -> None:
    before, after = speaker(ONE, FABRIC, ROUTES[:1]), speaker(ONE, FABRIC, ROUTES[1:2])
    assert commands(after, before) == [
        "router bgp 64512",
        "address-family l2vpn evpn",
        f"no network 10.1.0.3/32 rd {ONE}:10001 ethtag 3 label 10001 esi 00:00:00:00:00:00:00:00:00:00 gwip 0.0.0.0",
        "exit-address-family",
        "exit",
        "router bgp 64512",
        "address-family l2vpn evpn",
        f"network 10.1.0.5/32 rd {ONE}:10001 ethtag 5 label 10001 esi 00:00:00:00:00:00:00:00:00:00 gwip 0.0.0.0 "
        "routermac 02:03:00:00:27:11",
        "exit-address-family",
        "exit",
    ]
    assert to_refresh(after, before) == []


def test_a_dpu_that_gets_a_vpc_is_asked_and_told_anew_and_no_other_is() -> None:
    before = reflector("192.0.2.250", FABRIC, CLIENTS)
    after = reflector(
        "192.0.2.250", FABRIC, [CLIENTS[0], ReflectorClient(TWO, frozenset({BLUE, RED}), frozenset({RED}))]
    )
    assert commands(after, before) == [
        f"bgp extcommunity-list expanded from-{TWO} seq {BLUE} permit ^RT:64512:10001 Rmac:02:03:00:00:27:11$"
    ]
    assert to_refresh(after, before) == [TWO]


def test_another_autonomous_system_gives_way() -> None:
    before = speaker(ONE, Fabric(asn=64513, reflectors=FABRIC.reflectors), ROUTES)
    told = commands(speaker(ONE, FABRIC, ROUTES), before)
    assert told[0] == "no router bgp 64513"
    assert "router bgp 64512" in told


def test_a_neighbour_is_never_without_its_filters_wherever_bgpd_stops_listening() -> None:
    """Without them everybody's routes would be told to it, and everything taken from it."""
    alone, both = reflector("192.0.2.250", FABRIC, CLIENTS[:1]), reflector("192.0.2.250", FABRIC, CLIENTS)
    goes = [line for line in commands(alone, both) if f"neighbor {TWO} " in line]
    assert goes == [f"no neighbor {TWO} remote-as 64512"]
    comes = [line for line in commands(both, alone) if f"neighbor {TWO} " in line]
    assert comes[-1] == f"neighbor {TWO} activate"
    assert {f"neighbor {TWO} route-map from-{TWO} in", f"neighbor {TWO} route-map to-{TWO} out"} < set(comes)


@pytest.mark.parametrize("strange", ["shutdown", "no shutdown", "neighbor", "neighbor 192.0.2.9"])
def test_a_line_that_nobody_expects_is_taken_away_whatever_it_is(strange: str) -> None:
    wanted = speaker(ONE, FABRIC, ROUTES)
    (bgp,) = (section for section in wanted if len(section) == 1 and section[0].startswith("router bgp "))
    running = {**wanted, bgp: (*wanted[bgp], strange)}
    assert [line for line in commands(wanted, running) if line.removeprefix("no ") == strange.removeprefix("no ")]


def test_an_entry_of_a_list_that_takes_anothers_number_takes_its_place() -> None:
    """bgpd has the former one no more then, and refuses to take it away: all that was to be told after it with it."""
    before = reflector("192.0.2.250", Fabric(asn=64513, reflectors=FABRIC.reflectors), CLIENTS)
    told = commands(reflector("192.0.2.250", FABRIC, CLIENTS[:1]), before)
    assert f"bgp extcommunity-list standard to-{ONE} seq {RED} permit rt 64512:{RED}" in told
    assert [line for line in told if line.startswith("no bgp extcommunity-list ")] == [
        f"no bgp extcommunity-list standard to-{TWO} seq {RED} permit rt 64513:{RED}",
        f"no bgp extcommunity-list expanded from-{TWO} seq {RED} permit ^{communities(64513, RED)}$",
    ]


def test_no_two_routes_of_a_dpu_are_one_to_frr_which_looks_at_two_bytes_of_an_address() -> None:
    """It compares distinguisher, tag, length, and of the address 2 bytes, of IPv6 14."""
    vnis = (BLUE, RED, BLUE + (1 << 16), BLUE + (1 << 17))
    prefixes = ("10.1.0.3/32", "10.1.0.5/32", "10.1.1.3/32", "10.2.0.3/32", "10.1.0.0/16", "fd00::1/128", "fd00::2/128")
    routes = [OwnRoute(vni, prefix) for vni, prefix in itertools.product(vnis, prefixes)]
    seen = {
        (
            distinguisher(ONE, each.vni),
            ethernet_tag(each.vni, each.network),
            each.network.prefixlen,
            each.network.version,
            each.network.network_address.packed[:-2],
        )
        for each in routes
    }
    assert len(seen) == len(routes)


def test_vpcs_whose_numbers_meet_have_entries_of_their_own() -> None:
    vnis = (BLUE, BLUE + 65535, BLUE + 2 * 65535)
    told = speaker(ONE, FABRIC, [OwnRoute(vni, "10.1.0.3/32") for vni in vnis])
    assert len([section for section in told if section and section[0].startswith("route-map ")]) == 3


@pytest.mark.parametrize("vni", [1, BLUE, 65536, (1 << 20) - 1])
def test_a_route_says_of_which_vpc_it_is(vni: int) -> None:
    assert read_communities(communities(64512, vni), 64512) == vni
    assert read_communities(communities(64512, vni), 64513) is None
    assert read_communities(f"RT:64512:{vni + 1} {communities(64512, vni)}", 64512) is None


def test_a_distinguisher_is_read_or_refused() -> None:
    assert str(read_distinguisher(f"{ONE}:10001")) == f"{ONE}:10001"
    for text in ("", ":", "64512:1", f"{ONE}:", f"{ONE}:999999", f"{ONE}:-1", "fd00::1:1"):
        assert read_distinguisher(text) is None


def test_what_bgp_cannot_say_here_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValueError, match="use a lower range"):
        speaker(ONE, FABRIC, [OwnRoute(1 << 20, "10.1.0.3/32")])
    with pytest.raises(ValueError, match="no room"):
        Fabric(asn=65536, reflectors=())
    with pytest.raises(ValueError, match="none below 3"):
        Fabric(asn=1, reflectors=(), hold_seconds=2)
