"""Which ports are answered is read from the kernel, and is what the rules let in."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any, Literal

import pytest

from provisioner.api.network.dpu_network import DPUNetworkSpec
from provisioner.network.agent.dhcp.served import ServedPort, served_ports
from provisioner.network.agent.model.state import HOME, Address, Neighbour, PlaceState, Route
from tests.network.agent.specs import BLUE, RED, TWO, port, spec, vpc
from tests.network.agent.test_desired import situation, wanted

FUNCTIONS = {"pf0hpf": "pf0", "pf1hpf": "pf1"}
HERE = ("10.1.0.3", "fd00:1::3")


def places(what: DPUNetworkSpec, backend: Literal["vrf", "netns"] = "netns") -> dict[str, PlaceState]:
    return wanted(what, situation(backend))


def lets_ask(state: dict[str, PlaceState]) -> bool:
    """Whether a rule speaks of the port of DHCP servers as a packet's target."""
    match = '"left":{"payload":{"field":"dport","protocol":"udp"}},"op":"==","right":'
    rules = [rule.text for place in state.values() for chain in place.chains for rule in chain.rules]
    return any(f"{match}67}}" in each for each in rules)


@pytest.mark.parametrize(("backend", "place"), [("netns", "vpc-10001"), ("vrf", HOME)])
def test_a_port_is_served_with_what_the_spec_gives_its_host(backend: Any, place: str) -> None:
    what = spec(
        [vpc(BLUE, mtu=1400, remotes={TWO: ["10.1.0.5/32"]}, peers=(RED,)), vpc(RED, peers=(BLUE,))],
        [port(*HERE, prefixes=("10.1.0.64/26", "10.1.0.9/32")), port("10.2.0.7", function="pf1", vni=RED)],
    )
    one, two = served_ports(places(what, backend), FUNCTIONS)
    mac, address, gateway = "52:54:00:00:01:00", IPv4Address("10.1.0.3"), IPv4Address("10.1.0.2")
    assert one == ServedPort("pf0", place, "pf0hpf", mac, address, gateway, 1400)
    assert (two.function, str(two.address), str(two.gateway), two.mtu_bytes) == ("pf1", "10.2.0.7", "10.2.0.6", 1450)


@pytest.mark.parametrize("state", ["Isolated", "Quarantined"])
@pytest.mark.parametrize("backend", ["netns", "vrf"])
def test_a_port_that_passes_nothing_is_not_served(backend: Any, state: Any) -> None:
    found = places(spec([vpc()], [port(*HERE, state=state)]), backend)
    assert served_ports(found, FUNCTIONS) == ()
    assert not lets_ask(found)


def test_a_port_without_an_ipv4_address_is_not_served() -> None:
    found = places(spec([vpc()], [port(HERE[1])]))
    assert served_ports(found, FUNCTIONS) == ()
    assert not lets_ask(found)


def test_a_host_whose_gateway_is_not_the_other_one_of_its_pair_is_not_served() -> None:
    """The mask that it would be told does not hold both."""
    found = places(spec([vpc()], [replace(port("10.1.0.3"), gateways=("10.1.0.4",))]))
    assert served_ports(found, FUNCTIONS) == ()
    assert not lets_ask(found)
    assert lets_ask(places(spec([vpc()], [port("10.1.0.3")])))


def test_of_two_pairs_the_lowest_is_told_by_the_rules_and_by_the_kernel() -> None:
    found = places(spec([vpc()], [port("10.1.0.9", "10.1.0.3")]))
    (one,) = served_ports(found, FUNCTIONS)
    assert str(one.address) == "10.1.0.3"
    (chain,) = (each for each in found["vpc-10001"].chains if each.name == "from_host_pf0")
    rules = [each.text for each in chain.rules if '"udp"' in each.text]
    assert any("10.1.0.3" in each for each in rules)
    assert not any('"right":"10.1.0.8"' in each for each in rules)


def test_what_somebody_else_has_put_there_is_not_told_to_a_host() -> None:
    state = places(spec([vpc()], [port(*HERE)]))["vpc-10001"]
    (own,) = (each for each in state.routes if each.destination == "10.1.0.3/32")
    changes = {
        "an MTU that cannot be said": {"routes": state.routes - {own} | {replace(own, mtu_bytes=70000)}},
        "no MTU": {"routes": state.routes - {own} | {replace(own, mtu_bytes=None)}},
        "no neighbour": {"neighbours": frozenset[Neighbour]()},
        "no gateway": {"addresses": frozenset[Address]()},
        "no route": {"routes": frozenset[Route]()},
    }
    assert served_ports({"vpc-10001": state}, FUNCTIONS) != ()
    for what, change in changes.items():
        assert served_ports({"vpc-10001": replace(state, **change)}, FUNCTIONS) == (), what  # type: ignore[arg-type]
