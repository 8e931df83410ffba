"""What is said of a ping, its answers included, is what becomes of it in two DPUs' kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.network.control.compile.passage import Packets, judge_passage
from provisioner.network.control.compile.security import rules_of
from tests.network.agent.rack import Rack, rack
from tests.network.agent.specs import ONE, TWO, port, spec, vpc
from tests.network.control import objects
from tests.network.control.test_passage import a_group, a_side

HERE, THERE = ("10.1.0.3", "fd00:1::3"), ("10.1.0.5", "fd00:1::5")
ICMP_OUT, ICMP_IN = objects.rule("Egress", protocol="ICMP"), objects.rule("Ingress", protocol="ICMP")
NOTHING_IN = objects.rule("Ingress", action="Deny")
IPV4_IN = objects.rule("Ingress", cidrs=["10.1.0.4/31"])

GROUPS: dict[str, tuple[list[dict[str, Any]], bool]] = {
    "none": ([], True),
    "ingress alone": ([objects.rule(protocol="TCP", ports=["443"])], True),
    "stateful egress, closed ingress": ([ICMP_OUT, NOTHING_IN], True),
    "stateless egress, closed ingress": ([ICMP_OUT, NOTHING_IN], False),
    "stateless egress, IPv4 ingress": ([ICMP_OUT, IPV4_IN], False),
    "stateless both ways": ([ICMP_OUT, ICMP_IN], False),
}


@pytest.fixture
def network() -> Iterator[Rack]:
    with rack() as made:
        yield made


@pytest.mark.parametrize("name", GROUPS)
def test_a_ping_is_answered_just_when_it_is_said_to_be(network: Rack, name: str) -> None:
    rules, stateful = GROUPS[name]
    group = a_group("g", *rules, stateful=stateful)
    sender, receiver = a_side("a", " ".join(HERE), group), a_side("b", " ".join(THERE))

    one, two = network.dpu(ONE), network.dpu(TWO)
    here, there = (tuple(f"{each}/{128 if ':' in each else 32}" for each in side) for side in (HERE, THERE))
    assert one.enforce(spec([vpc(remotes={TWO: there})], [port(*HERE, rules=rules_of([group]))])).agrees
    assert two.enforce(spec([vpc(remotes={ONE: here})], [port(*THERE, vtep=TWO)], vtep=TWO)).agrees
    one.hosts["pf0"].take(*HERE)
    two.hosts["pf0"].take(*THERE)
    passage = judge_passage(sender, receiver, Packets(protocol="ICMP"), {}.get)
    assert len(passage.ways) == 2
    for way in passage.ways:
        answered = way.extent == "All" and way.answers_leave == way.answers_arrive == "Pass"
        host = one.hosts["pf0"]
        assert host.pings(way.receiver) if answered else host.reaches_nothing_at(way.receiver), way
