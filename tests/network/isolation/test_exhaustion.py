"""What a host could fill on its DPU, where others would miss it: neighbours are counted for the kernel as a whole."""

from __future__ import annotations

from scapy.layers.l2 import ARP

from tests.network.agent.rack import DPU, Rack, mac_of
from tests.network.agent.specs import BLUE, ONE, port, spec, vpc
from tests.network.isolation.frames import frame, send
from tests.network.isolation.test_attacks import without_filters

MINE, GATEWAY = "10.1.0.3", "10.1.0.2"


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

    ask()
    assert learned(dpu) == 0
    host.ip("addr", "add", "172.16.5.9/32", "dev", "eth0")
    host.ip("neigh", "flush", "all")
    host.ip("route", "replace", GATEWAY, "dev", "eth0", "src", "172.16.5.9")
    assert host.pings(GATEWAY), "asked in the name of an address behind it"
    without_filters(dpu, BLUE)
    ask()
    assert learned(dpu) == 100, "with nothing in its way each would be one"
