"""What one tenant could take from the others of a DPU: room in the kernel, and the word that all is as it should be."""

from __future__ import annotations

from scapy.layers.l2 import ARP

from tests.network.agent.rack import DPU, Rack, mac_of
from tests.network.agent.specs import BLUE, ONE, RED, port, spec, vpc
from tests.network.isolation.frames import frame, send
from tests.network.isolation.test_attacks import without_filters

MINE, GATEWAY = "10.1.0.3", "10.1.0.2"
GREEN = 10003


def learned(dpu: DPU) -> int:
    """Neighbours that the agent has not put there."""
    return sum(1 for line in dpu.in_domain(BLUE, "ip", "neigh", "show", "nud", "all").splitlines() if "172.16." in line)


def test_a_host_with_a_subnet_behind_it_makes_no_neighbours_of_it(network: Rack) -> None:
    dpu = network.dpu(ONE)
    host, mac = dpu.hosts["pf0"], mac_of(ONE, "pf0")
    host.take(MINE)
    assert dpu.enforce(spec([vpc()], [port(MINE, prefixes=("172.16.0.0/16",))])).agrees

    def ask() -> None:
        for number in range(100):
            asks = ARP(op=1, hwsrc=mac, psrc=f"172.16.{number}.9", pdst=GATEWAY)
            send(host, frame(asks, mac=mac, to="ff:ff:ff:ff:ff:ff"))

    host.ip("addr", "add", "172.16.5.9/32", "dev", "eth0")
    host.ip("neigh", "flush", "all")
    host.ip("route", "replace", GATEWAY, "dev", "eth0", "src", "172.16.5.9")
    assert host.pings(GATEWAY), "asked in the name of an address behind it"
    ask()
    assert learned(dpu) == 0
    without_filters(dpu, BLUE)
    ask()
    assert learned(dpu) == 100, "with nothing in its way each would be one"


def test_what_one_tenant_attaches_that_cannot_be_keeps_nobody_from_being_confirmed(network: Rack) -> None:
    """A function that the card has not, and an MTU that the underlay does not carry, by a VPC and by a peer of ours."""
    dpu = network.dpu(ONE)
    dpu.hosts["pf0"].take(MINE)
    bogus = port("10.1.0.9", function="pf0vf99", vni=RED)
    wanted = spec([vpc(peers=[GREEN]), vpc(RED), vpc(GREEN, mtu=9000, peers=[BLUE])], [port(MINE), bogus])
    enforced = dpu.enforce(wanted)
    assert (enforced.agrees, enforced.holds) == (False, True)
    assert {each.reason for each in enforced.problems} == {"PortMissing", "UnderlayMTU"}
    assert {each.function: each.state for each in enforced.ports} == {"pf0": "Tenant", "pf0vf99": "Isolated"}
    assert dpu.hosts["pf0"].pings(GATEWAY)

    dpu.ip("addr", "flush", "dev", "uplink")
    assert not dpu.enforce(wanted).holds, "what the DPU itself lacks is everybody's"
