"""Frame by frame: what gets past a host's port, and that without the port's rules all of it would."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator

import pytest

from tests.network.agent.frames import BROADCAST, arp, ethernet, icmp, ipv4, ipv6, solicitation, udp
from tests.network.agent.rack import DPU, rack
from tests.network.agent.specs import BLUE, ONE, port, spec, vpc

pytestmark = pytest.mark.programs

HOST, OTHER_MAC = "52:54:00:00:01:00", "52:54:00:00:66:66"
IP, GATEWAY, OTHER = "10.1.0.3", "10.1.0.2", "10.1.0.5"
IP6, GATEWAY6, OTHER6 = "fd00:1::3", "fd00:1::2", "fd00:1::5"
LAST = "10.1.0.77"
"""To whom nothing is sent but the last frame of all."""
NOBODY, EVERYBODY = "0.0.0.0", "255.255.255.255"  # noqa: S104 - the sender of a packet
LINK_LOCAL = "fe80::5054:ff:fe00:100"
WANTED = spec([vpc()], [port(IP, IP6, prefixes=("192.168.7.0/24",))])

PASSES = {
    "IPv4": ipv4(HOST, IP, OTHER),
    "IPv6": ipv6(HOST, IP6, OTHER6),
    "from an address behind the host": ipv4(HOST, "192.168.7.9", OTHER),
    "ping": ipv4(HOST, IP, OTHER, icmp(8), 1),
    "who has the gateway": arp(HOST, IP, GATEWAY),
    "have you still the gateway": arp(HOST, IP, GATEWAY, to="02:00:5e:00:01:01"),
    "who has the gateway, for an address behind the host": arp(HOST, "192.168.7.9", GATEWAY),
    "solicits the gateway": solicitation(HOST, IP6, GATEWAY6),
    "solicits the gateway from its link-local address": solicitation(HOST, LINK_LOCAL, GATEWAY6),
    "solicits without an option": solicitation(HOST, IP6, GATEWAY6, has_option=False),
    "asks for its address": ipv4(HOST, NOBODY, EVERYBODY, udp(68, 67), to=BROADCAST),
    "asks any server for the address that it has": ipv4(HOST, IP, EVERYBODY, udp(68, 67), to=BROADCAST),
    "renews its address": ipv4(HOST, IP, GATEWAY, udp(68, 67)),
}
DROPPED = {
    "another source MAC": ipv4(OTHER_MAC, IP, OTHER),
    "another source MAC over IPv6": ipv6(OTHER_MAC, IP6, OTHER6),
    "another IPv4 source": ipv4(HOST, "10.1.0.7", OTHER),
    "the gateway's IPv4 address": ipv4(HOST, GATEWAY, OTHER),
    "another IPv6 source": ipv6(HOST, "fd00:1::7", OTHER6),
    "ARP in another's name": arp(HOST, "10.1.0.7", GATEWAY),
    "ARP with another's MAC inside": arp(HOST, IP, GATEWAY, sender_mac=OTHER_MAC),
    "an ARP answer": arp(HOST, GATEWAY, IP, operation=2),
    "an ARP answer in its own name": arp(HOST, IP, GATEWAY, operation=2),
    "a gratuitous ARP": arp(HOST, IP, IP),
    "an ARP probe": arp(HOST, NOBODY, IP),
    "who has somebody else": arp(HOST, IP, OTHER),
    "solicits with another's MAC inside": solicitation(HOST, IP6, GATEWAY6, option_mac=OTHER_MAC),
    "solicits with a second option": solicitation(HOST, IP6, GATEWAY6, more=b"\1\1" + bytes(6)),
    "solicits somebody else": solicitation(HOST, IP6, OTHER6),
    "solicits from another's link-local address": solicitation(HOST, "fe80::1", GATEWAY6),
    "solicits from afar": solicitation(HOST, IP6, GATEWAY6, hop_limit=64),
    "detects duplicates": solicitation(HOST, "::", IP6, has_option=False),
    "advertises a neighbour": solicitation(HOST, IP6, GATEWAY6, kind=136),
    "advertises itself as router": ipv6(HOST, LINK_LOCAL, "ff02::1", icmp(134, 0, bytes(12)), 58, hop_limit=255),
    "advertises itself as router to one": ipv6(HOST, IP6, OTHER6, icmp(134, 0, bytes(12)), 58, hop_limit=255),
    "solicits routers": ipv6(HOST, LINK_LOCAL, "ff02::2", icmp(133), 58, hop_limit=255),
    "redirects over IPv6": ipv6(HOST, IP6, OTHER6, icmp(137, 0, bytes(36)), 58, hop_limit=255),
    "redirects": ipv4(HOST, IP, OTHER, icmp(5), 1),
    "a multicast listener's report": ipv6(HOST, LINK_LOCAL, "ff02::16", icmp(143, 0, bytes(24)), 58),
    "a DHCP server": ipv4(HOST, IP, OTHER, udp(67, 68)),
    "a DHCPv6 server": ipv6(HOST, IP6, OTHER6, udp(547, 546)),
    "a DHCP server by broadcast": ipv4(HOST, IP, EVERYBODY, udp(67, 68), to=BROADCAST),
    "a DHCP client of another MAC": ipv4(OTHER_MAC, NOBODY, EVERYBODY, udp(68, 67), to=BROADCAST),
    "a DHCP client in another's name": ipv4(HOST, "10.1.0.7", EVERYBODY, udp(68, 67), to=BROADCAST),
    "a DHCP client in the name of an address behind it": ipv4(
        HOST, "192.168.7.9", EVERYBODY, udp(68, 67), to=BROADCAST
    ),
    "a DHCP client of another port": ipv4(HOST, NOBODY, EVERYBODY, udp(1000, 67), to=BROADCAST),
    "a DHCP client without an address that asks its gateway": ipv4(HOST, NOBODY, GATEWAY, udp(68, 67)),
    "a DHCP client of another host": ipv4(HOST, IP, OTHER, udp(68, 67)),
    "a DHCP relay": ipv4(HOST, IP, GATEWAY, udp(67, 67)),
    "something else from nobody by broadcast": ipv4(HOST, NOBODY, EVERYBODY, udp(68, 69), to=BROADCAST),
    "a VLAN tag": ipv4(HOST, IP, OTHER, tags=(0x8100,)),
    "a provider's tag": ipv4(HOST, IP, OTHER, tags=(0x88A8,)),
    "two tags": ipv4(HOST, IP, OTHER, tags=(0x88A8, 0x8100)),
    "another protocol": ethernet(HOST, 0x88CC, b"lldp"),
    "a length in place of a protocol": ethernet(HOST, 0x0026, bytes(38), "01:80:c2:00:00:00"),
    "IPv4 by broadcast": ipv4(HOST, IP, OTHER, to=BROADCAST),
    "an IPv4 broadcast": ipv4(HOST, IP, "255.255.255.255"),
    "IPv4 multicast": ipv4(HOST, IP, "224.0.0.251", to="01:00:5e:00:00:fb"),
    "IPv6 multicast": ipv6(HOST, IP6, "ff02::fb", to="33:33:00:00:00:fb"),
    "to a MAC that is not the gateway's": ipv4(HOST, IP, OTHER, to=OTHER_MAC),
    "the metadata service": ipv4(HOST, IP, "169.254.169.254"),
    "the IPv6 metadata service": ipv6(HOST, IP6, "fd00:ec2::254"),
    "a link-local neighbour": ipv6(HOST, IP6, "fe80::1"),
    "the loopback": ipv4(HOST, IP, "127.0.0.1"),
    "IPv4 mapped into IPv6": ipv6(HOST, IP6, "::ffff:10.1.0.5"),
}


@pytest.fixture(scope="module")
def dpu() -> Iterator[DPU]:
    """A DPU whose host keeps silent but for what a test sends; behind the port's rules stands a counter."""
    with rack() as network:
        made = network.dpu(ONE)
        made.hosts["pf0"].output("sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1")
        assert made.enforce(WANTED).agrees
        made.in_domain(
            BLUE, "nft",
            "table netdev behind { chain seen { type filter hook ingress device pf0hpf priority 0; "
            f"counter; ip daddr {LAST} counter; }}; }}",
        )  # fmt: skip
        yield made


def passed(dpu: DPU, *frames: bytes) -> int:
    """How many of them get past the port. The last word is a frame that does: once it is there, so are they.

    The frames are sent again if the last one does not arrive: on a busy machine, the first frame over a link that was
    just set up can be lost before the kernel has activated the link.
    """

    def send() -> None:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind(("eth0", 0))
            for frame in (*frames, ipv4(HOST, IP, LAST)):
                sock.send(frame)

    for _ in range(30):
        before, ended = _counts(dpu)
        dpu.hosts["pf0"].inside(send)
        late = time.monotonic() + 10
        while time.monotonic() < late:
            every, last = _counts(dpu)
            if last != ended:
                return every - before - 1
            time.sleep(0.01)
    pytest.fail("nothing gets past the port, not even what shall")


def _counts(dpu: DPU) -> tuple[int, int]:
    """Frames that got past the port, and last ones."""
    listed = json.loads(dpu.in_domain(BLUE, "nft", "-j", "list", "table", "netdev", "behind"))
    every, last = (each["rule"]["expr"][-1]["counter"]["packets"] for each in listed["nftables"] if "rule" in each)
    return every, last


@pytest.mark.parametrize("frame", PASSES)
def test_what_a_host_needs_passes(dpu: DPU, frame: str) -> None:
    assert passed(dpu, PASSES[frame]) == 1


@pytest.mark.parametrize("frame", DROPPED)
def test_everything_else_is_dropped(dpu: DPU, frame: str) -> None:
    assert passed(dpu, DROPPED[frame]) == 0


def test_a_storm_of_what_may_pass_is_cut(dpu: DPU) -> None:
    assert passed(dpu, *[PASSES["who has the gateway"]] * 500) < 60
    assert passed(dpu, *[PASSES["solicits the gateway"]] * 500) < 60
    assert passed(dpu, *[PASSES["asks for its address"]] * 500) < 40
    assert passed(dpu, *[PASSES["renews its address"]] * 500) < 40


def test_without_the_ports_rules_all_of_it_would_pass(dpu: DPU) -> None:
    dpu.in_domain(BLUE, "nft", "delete", "table", "netdev", "provisioner")
    try:
        assert passed(dpu, *DROPPED.values()) == len(DROPPED)
    finally:
        assert dpu.enforce(WANTED).mended
