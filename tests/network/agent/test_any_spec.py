"""From any spec to any other: the kernel agrees, another agent finds nothing to do, and in the end nothing is left."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import pytest

from provisioner.api.network.dpu_network import DPUNetworkSpec, PortRule
from provisioner.network.agent.model import namespaces
from tests.network.agent.rack import Rack
from tests.network.agent.specs import ONE, port, spec, vpc

T = TypeVar("T")
STEPS = 8
VNIS = (10001, 10002, 10003, 255)
CIDRS = ("10.0.0.0/8", "10.1.0.0/24", "10.1.0.3/32", "10.1.0.4/32", "fd00::/64", "::/0", "0.0.0.0/0", "fd00:1::/127")
PORTS = ("22", "80-90", "91", "443", "1-65535", "5000")


def some(draw: random.Random, values: Sequence[T], most: int) -> tuple[T, ...]:
    return tuple(draw.sample(values, draw.randint(0, most)))


def any_rule(draw: random.Random) -> PortRule:
    protocol = draw.choice(["Any", "TCP", "UDP", "ICMP"])
    return PortRule(
        direction=draw.choice(["Ingress", "Egress"]),
        action=draw.choice(["Allow", "Deny"]),
        protocol=protocol,
        ports=some(draw, PORTS, 4) if protocol in ("TCP", "UDP") else (),
        cidrs=some(draw, CIDRS, 5),
        stateful=draw.random() < 0.5,
    )


def any_spec(draw: random.Random) -> DPUNetworkSpec:
    vnis = some(draw, VNIS, len(VNIS))
    vpcs = [
        vpc(
            vni,
            remotes={
                f"192.0.2.{dpu}": [
                    *(f"10.{vni % 250}.{dpu}.{host}/32" for host in range(draw.randint(0, 4))),
                    *(f"fd00:{vni:x}:{dpu}::{host:x}/128" for host in range(draw.randint(0, 3))),
                ]
                for dpu in some(draw, range(2, 9), 4)
            },
            mtu=draw.choice([1450, 1400, 1280]),
            peers=[peer for peer in vnis if peer != vni and draw.random() < 0.7],
        )
        for vni in vnis
    ]
    ports = []
    for place, function in enumerate(("pf0", "pf1", "pf2")):
        if vnis and draw.random() < 0.8:
            four, six = (
                f"10.{200 + place}.0.{2 * draw.randint(1, 50) + 1}",
                f"fd00:{place:x}::{draw.randint(1, 50) * 2 + 1:x}",
            )
            addresses = draw.choice([(four,), (six,), (four, six)])
            behind = (
                [f"172.{16 + place}.{draw.randint(0, 3)}.0/24"] if four in addresses and draw.random() < 0.4 else []
            )
            ports.append(
                port(
                    *addresses,
                    function=function,
                    vni=draw.choice(vnis),
                    state=draw.choice(["Tenant"] * 5 + ["Isolated", "Quarantined"]),  # type: ignore[arg-type]
                    rules=[any_rule(draw) for _ in range(draw.randint(0, 4))],
                    prefixes=behind,
                )
            )
    return spec(vpcs, ports)


@pytest.mark.parametrize("seed", [11])
def test_from_any_spec_to_any_other(network: Rack, seed: int) -> None:
    draw = random.Random(seed)
    dpu = network.dpu(ONE, ("pf0", "pf1", "pf2"))
    for _ in range(STEPS):
        wanted = any_spec(draw)
        enforced = dpu.enforce(wanted)
        assert (enforced.problems, enforced.agrees) == ((), True)
        again = dpu.inside(lambda wanted=wanted: dpu.another().enforce(wanted))  # type: ignore[misc]
        assert (again.agrees, again.changes, again.mended) == (True, 0, False)
    assert dpu.release().agrees
    assert namespaces.domains_of(dpu.name) == []
    assert dpu.output("nft", "list", "ruleset") == ""
