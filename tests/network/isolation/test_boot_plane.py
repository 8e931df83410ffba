"""What a tenant's root tries with the way by which its host boots; each attack succeeds once its defence is gone.

The host of pf0 boots through the DPU and is in a VPC; the host of pf1 is in the same VPC and boots otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet

from provisioner.network.agent.model.naming import GATEWAY_MAC
from tests.network.agent.boot.boot_host import IMAGE, KERNEL
from tests.network.agent.boot.site import BOOT_HOST, HOST_ADDRESS, Site
from tests.network.agent.boot.test_boots import IN_A_VPC, IN_NONE, Booting, booting
from tests.network.agent.dhcp.clients import running
from tests.network.agent.rack import Namespace, Rack
from tests.network.agent.specs import BLUE
from tests.network.isolation.frames import MARK, arrives, count_heard, ear, frame, is_heard, is_silent, send, udp

NEIGHBOUR, MINE = "10.1.0.5", "10.1.0.3"
OTHER_MAC, BROADCAST = "52:54:00:99:99:99", "ff:ff:ff:ff:ff:ff"


@pytest.fixture(params=[IN_NONE, IN_A_VPC], ids=["in no VPC", "in a VPC"])
def site(request: pytest.FixtureRequest, network: Rack) -> Site:
    made = Site(network)
    assert made.enforce(request.param).agrees
    made.in_vpc = request.param is IN_A_VPC
    return made


@pytest.fixture
def served(network: Rack, tmp_path: Path) -> Iterator[Booting]:
    with booting(network, tmp_path, IN_A_VPC) as made:
        made.site.take_boot_address()
        made.site.dpu.hosts["pf1"].take(NEIGHBOUR)
        yield made


def where_the_ports_are(site: Site, *, in_vpc: bool) -> Namespace:
    return Namespace(site.dpu.domain(BLUE)) if in_vpc else site.dpu


def without_port_rules(where: Namespace, function: str) -> None:
    """All that comes from the port is handed to the boot plane."""
    chain = ("netdev", "provisioner", f"from_host_{function}")
    where.output("nft", "flush", "chain", *chain)
    where.output("nft", "add", "rule", *chain, "fwd", "to", '"boot-pf0"')


def tcp(source: str, target: str, port: int) -> Packet:
    return IP(src=source, dst=target) / TCP(sport=4000, dport=port, flags="S") / MARK


def answer_of_a_dhcp_server(site: Site) -> Packet:
    body = BOOTP(op=2, chaddr=bytes(6), yiaddr="10.6.6.6", xid=7) / DHCP(options=[("message-type", "offer"), "end"])
    return Ether(src=site.host.mac, dst=BROADCAST) / IP(src=HOST_ADDRESS, dst="255.255.255.255") / UDP(
        sport=67, dport=68
    ) / body / MARK  # fmt: skip


HONEST: dict[str, Callable[[Site], Packet]] = {
    "HTTP": lambda s: frame(tcp(HOST_ADDRESS, BOOT_HOST, 80), mac=s.host.mac),
    "its join": lambda s: frame(tcp(HOST_ADDRESS, BOOT_HOST, s.services.join_port), mac=s.host.mac),
    "the API server": lambda s: frame(tcp(HOST_ADDRESS, BOOT_HOST, s.services.api_port), mac=s.host.mac),
}

FORGED: dict[str, Callable[[Site], Packet]] = {
    "another host's boot address": lambda s: frame(tcp("192.0.2.22", BOOT_HOST, 80), mac=s.host.mac),
    "its DPU's address": lambda s: frame(tcp("192.0.2.1", BOOT_HOST, 80), mac=s.host.mac),
    "its address in the VPC": lambda s: frame(tcp(MINE, BOOT_HOST, 80), mac=s.host.mac),
    "another MAC address": lambda s: frame(tcp(HOST_ADDRESS, BOOT_HOST, 80), mac=OTHER_MAC),
    "a VLAN": lambda s: (
        Ether(src=s.host.mac, dst=GATEWAY_MAC) / Dot1Q(vlan=7) / tcp(HOST_ADDRESS, BOOT_HOST, 80)
    ),
    "another service of the boot host": lambda s: frame(tcp(HOST_ADDRESS, BOOT_HOST, 22), mac=s.host.mac),
    "where DPUs ask for their hosts": lambda s: frame(
        tcp(HOST_ADDRESS, BOOT_HOST, s.services.dpu_join_port), mac=s.host.mac
    ),
    "the join of somebody else's boot host": lambda s: frame(
        tcp(HOST_ADDRESS, "192.0.2.99", s.services.join_port), mac=s.host.mac
    ),
    "a BMC": lambda s: frame(udp(HOST_ADDRESS, "192.0.2.200"), mac=s.host.mac),
    "ARP in another's name": lambda s: (
        Ether(src=s.host.mac, dst=BROADCAST) / ARP(op=1, hwsrc=s.host.mac, psrc="192.0.2.22", pdst=BOOT_HOST) / MARK
    ),
    "ARP with another MAC address": lambda s: (
        Ether(src=s.host.mac, dst=BROADCAST) / ARP(op=1, hwsrc=OTHER_MAC, psrc=HOST_ADDRESS, pdst=BOOT_HOST) / MARK
    ),
    "an answer by ARP": lambda s: (
        Ether(src=s.host.mac, dst=GATEWAY_MAC) / ARP(op=2, hwsrc=s.host.mac, psrc=HOST_ADDRESS, pdst=BOOT_HOST) / MARK
    ),
    "an answer of a DHCP server": answer_of_a_dhcp_server,
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_what_is_not_its_boot_does_not_come_to_the_plane(site: Site, forged: Callable[[Site], Packet]) -> None:
    plane = Namespace(site.plane())
    with ear(plane, "tohost") as heard:
        for honest in HONEST.values():
            assert arrives(site.host, honest(site), heard), "what it may send arrives"
        send(site.host, forged(site))
        assert is_silent(heard)
        without_port_rules(where_the_ports_are(site, in_vpc=site.in_vpc), "pf0")
        assert arrives(site.host, forged(site), heard), "with nothing in its way it would arrive"


def test_another_port_of_the_dpu_does_not_come_to_the_plane(served: Booting) -> None:
    site = served.site
    other = site.dpu.hosts["pf1"]
    asks = frame(tcp(HOST_ADDRESS, BOOT_HOST, 80), mac=other.mac)
    with ear(Namespace(site.plane()), "tohost") as heard:
        send(other, asks)
        assert is_silent(heard)
        without_port_rules(Namespace(site.dpu.domain(BLUE)), "pf1")
        assert arrives(other, asks, heard), "with nothing in its way it would arrive"


def test_with_its_boot_address_it_reaches_nobody_in_its_vpc(served: Booting) -> None:
    site = served.site
    domain, neighbour = Namespace(site.dpu.domain(BLUE)), site.dpu.hosts["pf1"]
    with ear(neighbour) as heard:
        assert arrives(site.host, frame(udp(MINE, NEIGHBOUR), mac=site.host.mac), heard), (
            "with its address in the VPC it does"
        )
        send(site.host, frame(udp(HOST_ADDRESS, NEIGHBOUR), mac=site.host.mac))
        assert is_silent(heard)
        domain.output("nft", "flush", "ruleset")
        domain.output("sh", "-c", "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done")
        assert arrives(site.host, frame(udp(HOST_ADDRESS, NEIGHBOUR), mac=site.host.mac), heard), (
            "with nothing in its way it would"
        )


def test_the_plane_takes_for_itself_what_is_served_and_leads_nowhere(served: Booting) -> None:
    """Even of a host whose port lets everything into it."""
    site = served.site
    plane = Namespace(site.plane())
    without_port_rules(Namespace(site.dpu.domain(BLUE)), "pf0")
    answers = ("busybox", "nc", "-w", "2", BOOT_HOST, "2222")
    listens = plane.command("busybox", "nc", "-l", "-p", "2222", "-e", "echo", "inside")
    with ear(site.far) as heard:
        send(site.host, frame(udp(HOST_ADDRESS, BOOT_HOST), mac=site.host.mac), times=3)
        assert is_silent(heard), "there is no way to the underlay"
    with running(listens):
        assert site.host.run(*answers).stdout == ""
        plane.output("nft", "flush", "ruleset")
        assert site.host.run(*answers).stdout == "inside\n", "with nothing in its way it would come to another service"
    assert plane.output("cat", "/proc/sys/net/ipv4/ip_forward") == "0\n"


def test_who_is_on_the_underlay_is_not_served(served: Booting) -> None:
    assert served.get(f"{IMAGE}/vmlinuz") == (200, KERNEL)
    ran = served.site.far.run("curl", "-s", "-m", "2", "http://192.0.2.1/boot.ipxe")
    assert ran.returncode == 7, "nothing listens on the uplink"


def test_nobody_but_the_host_hears_what_the_plane_says(served: Booting) -> None:
    neighbour = served.site.dpu.hosts["pf1"]

    def of_the_plane(got: bytes) -> bool:
        return IP in Ether(got) and Ether(got)[IP].src == BOOT_HOST

    with ear(neighbour) as theirs, ear(served.site.host) as its_own:
        assert served.get(f"{IMAGE}/vmlinuz")[0] == 200
        assert is_heard(its_own, of_the_plane)
        assert is_silent(theirs, of_the_plane)


def test_a_storm_of_dhcp_comes_to_the_plane_in_measure(site: Site) -> None:
    body = BOOTP(op=1, chaddr=bytes.fromhex(site.host.mac.replace(":", "")), xid=7)
    asks = Ether(src=site.host.mac, dst=BROADCAST) / IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=67)  # noqa: S104
    asks = asks / body / DHCP(options=[("message-type", "discover"), "end"])

    def is_question(got: bytes) -> bool:
        return BOOTP in Ether(got)

    def share(of: int, seconds: float) -> int:
        with ear(Namespace(site.plane()), "tohost") as heard:
            send(site.host, asks, times=of)
            return count_heard(heard, is_question, seconds=seconds, enough=of)

    assert 1 <= share(100, 1.0) <= 40
    without_port_rules(where_the_ports_are(site, in_vpc=site.in_vpc), "pf0")
    assert share(100, 60.0) == 100, "with nothing in its way it would come whole"
