"""What a tenant's root, and a stranger on the underlay, try; each attack succeeds once its defence is taken away.

Two tenants, blue and red, with the same addresses and the same hardware addresses, have a host behind each of two DPUs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
from scapy.layers.inet import UDP
from scapy.layers.inet6 import ICMPv6ND_RA, ICMPv6NDOptPrefixInfo, ICMPv6NDOptSrcLLAddr, IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet

from provisioner.api.network.dpu_network import DPUVPC, DPUPort
from provisioner.network.agent.model.naming import GATEWAY_MAC, router_mac
from tests.inventory.site import eventually
from tests.network.agent.rack import DOMAINS, DPU, Host, Namespace, Rack, mac_of
from tests.network.agent.specs import BLUE, ONE, RED, TWO, port, spec, vpc
from tests.network.evpn.fabric import ROUTES, evpn_fabric
from tests.network.isolation.frames import arrives, count_heard, ear, frame, is_silent, send, udp

HERE, THERE = ("10.1.0.3", "fd00:1::3"), ("10.1.0.5", "fd00:1::5")
PREFIXES = {ONE: ("10.1.0.3/32", "fd00:1::3/128"), TWO: ("10.1.0.5/32", "fd00:1::5/128")}
STRANGER = "192.0.2.99"


@dataclass
class Tenants:
    """Both tenants' hosts behind both DPUs, and somebody on the underlay who is no DPU."""

    network: Rack
    one: DPU
    two: DPU
    stranger: Namespace

    @property
    def mac(self) -> str:
        """Of the hosts behind the first DPU."""
        return self.blue(self.one).mac

    def blue(self, dpu: DPU) -> Host:
        return dpu.hosts["pf0"]

    def red(self, dpu: DPU) -> Host:
        return dpu.hosts["pf1"]


def specs_of(vtep: str, other: str, addresses: tuple[str, ...]) -> tuple[list[DPUVPC], list[DPUPort]]:
    vpcs = [vpc(vni, remotes={other: PREFIXES[other]}) for vni in (BLUE, RED)]
    blue = port(*addresses, vtep=vtep)
    return vpcs, [blue, DPUPort(**{**vars(blue), "function": "pf1", "vni": RED})]


@pytest.fixture(params=ROUTES)
def tenants(request: pytest.FixtureRequest, network: Rack, tmp_path: Path) -> Iterator[Tenants]:
    with evpn_fabric(network, tmp_path) if request.param == "EVPN" else nullcontext() as fabric:
        functions = ("pf0", "pf1")
        dpus = [
            network.dpu(vtep, functions) if fabric is None else fabric.member(vtep, functions).dpu
            for vtep in (ONE, TWO)
        ]
        told = {}
        for dpu, other, addresses in ((dpus[0], TWO, HERE), (dpus[1], ONE, THERE)):
            for host in dpu.hosts.values():
                host.ip("link", "set", "eth0", "address", mac_of(dpu.vtep, "pf0"))
                host.mac = mac_of(dpu.vtep, "pf0")
                host.take(*addresses)
            vpcs, ports = specs_of(dpu.vtep, other, addresses)
            told[dpu.vtep] = spec(vpcs, ports, vtep=dpu.vtep)
        if fabric is not None:
            fabric.come_to(told)
        else:
            for dpu in dpus:
                enforced = dpu.enforce(told[dpu.vtep])
                assert enforced.agrees, enforced.problems
        stranger = network.namespace("stranger")
        network.on_underlay(stranger, "eth0", STRANGER)
        yield Tenants(network, *dpus, stranger)


def without_filters(dpu: DPU, vni: int | None = None) -> None:
    """Take away the packet filter of a tenant's domain, or that of the DPU's own namespace."""
    if vni is None:
        dpu.output("nft", "flush", "ruleset")
    else:
        if DOMAINS == "vrf":
            without_domains(dpu)
        else:
            dpu.in_domain(vni, "nft", "flush", "ruleset")
        dpu.in_domain(vni, "sh", "-c", "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done")


def without_domains(dpu: DPU) -> None:
    """Take away all filters but that of the underlay, which is in one table with those of VRFs."""
    listed = json.loads(dpu.output("nft", "-j", "list", "ruleset"))["nftables"]
    words = []
    for chain in (each["chain"] for each in listed if "chain" in each):
        if chain["name"] != "underlay" and not chain["name"].startswith(("vxlan_", "vni_")):
            named = f"{chain['family']} {chain['table']} {chain['name']}"
            words.append(f"flush chain {named}")
            if "hook" in chain:
                words.append(f"chain {named} {{ policy accept; }}")
    assert dpu.run("nft", "-f", "-", stdin="\n".join(words)).returncode == 0


def test_same_addresses_in_two_tenants_are_two_pairs_of_hosts(tenants: Tenants) -> None:
    with ear(tenants.red(tenants.two)) as red, ear(tenants.blue(tenants.two)) as blue:
        for target in THERE:
            assert tenants.blue(tenants.one).pings(target)
            assert tenants.red(tenants.one).pings(target)
        for source, target in zip(HERE, THERE, strict=True):
            assert arrives(tenants.blue(tenants.one), frame(udp(source, target), mac=tenants.mac), blue)
            assert is_silent(red)


def test_the_tenant_is_all_that_keeps_two_hosts_apart(tenants: Tenants) -> None:
    """The twin of the one above: the red host is heard once it is a blue one."""
    vpcs, (blue, _) = specs_of(TWO, ONE, THERE)
    moved = port("10.1.0.9", vtep=TWO, function="pf1")
    moved = DPUPort(**{**vars(moved), "mac_address": blue.mac_address})
    assert tenants.two.enforce(spec(vpcs, [blue, moved], vtep=TWO)).agrees
    vpcs, ports = specs_of(ONE, TWO, HERE)
    vpcs = [vpc(BLUE, remotes={TWO: (*PREFIXES[TWO], "10.1.0.9/32")}), vpcs[1]]
    assert tenants.one.enforce(spec(vpcs, ports)).agrees
    tenants.red(tenants.two).ip("addr", "flush", "dev", "eth0")
    tenants.red(tenants.two).take("10.1.0.9")
    assert tenants.blue(tenants.one).pings("10.1.0.9")
    assert not tenants.red(tenants.one).pings("10.1.0.9", patience_seconds=0.2)


FORGED: dict[str, Callable[[Tenants], Packet]] = {
    "another one's IPv4 address": lambda t: frame(udp("10.1.0.7", THERE[0]), mac=t.mac),
    "another one's IPv6 address": lambda t: frame(udp("fd00:1::7", THERE[1]), mac=t.mac),
    "another one's MAC address": lambda t: frame(udp(HERE[0], THERE[0]), mac="52:54:00:99:99:99"),
    "another one's MAC address, by IPv6": lambda t: frame(udp(HERE[1], THERE[1]), mac="52:54:00:99:99:99"),
    "an answer of a DHCP server": lambda t: frame(udp(HERE[0], THERE[0], source_port=67), mac=t.mac),
    "an answer of a DHCPv6 server": lambda t: frame(udp(HERE[1], THERE[1], source_port=547), mac=t.mac),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_host_cannot_send(tenants: Tenants, forged: Callable[[Tenants], Packet]) -> None:
    with ear(tenants.blue(tenants.two)) as heard:
        for honest in zip(HERE, THERE, strict=True):
            assert arrives(tenants.blue(tenants.one), frame(udp(*honest), mac=tenants.mac), heard), (
                "what it may send arrives"
            )
        send(tenants.blue(tenants.one), forged(tenants))
        assert is_silent(heard)

        for dpu in (tenants.one, tenants.two):
            without_filters(dpu, BLUE)
        assert arrives(tenants.blue(tenants.one), forged(tenants), heard), "with nothing in its way it would arrive"


def neighbour(tenants: Tenants) -> str:
    """The hardware address that the first DPU has for its blue host, if it has one."""
    device = tenants.one.ports["pf0"]
    words = tenants.one.in_domain(BLUE, "ip", "-4", "neigh", "show", HERE[0], "dev", device).split()
    return words[words.index("lladdr") + 1] if "lladdr" in words else ""


def test_a_host_cannot_give_its_address_another_mac_by_arp(tenants: Tenants) -> None:
    wrong = "52:54:00:99:99:99"
    host = tenants.blue(tenants.one)
    assert host.pings("10.1.0.2")
    claims = ARP(op=2, hwsrc=wrong, psrc=HERE[0], hwdst=GATEWAY_MAC, pdst="10.1.0.2")
    send(host, frame(claims, mac=tenants.mac))
    assert host.pings(THERE[0])
    assert neighbour(tenants) in ("", tenants.mac)

    without_filters(tenants.one, BLUE)
    device = tenants.one.ports["pf0"]
    tenants.one.in_domain(BLUE, "ip", "neigh", "replace", HERE[0], "lladdr", tenants.mac, "nud", "stale", "dev", device)
    # The kernel believes nothing new for a moment after the last news.
    tenants.one.in_domain(BLUE, "sh", "-c", f"echo 0 > /proc/sys/net/ipv4/neigh/{device}/locktime")
    send(host, frame(claims, mac=tenants.mac))
    assert neighbour(tenants) == wrong, "with nothing in its way it would be believed"


def default_routes(tenants: Tenants) -> str:
    device = tenants.one.ports["pf0"]
    return tenants.one.in_domain(BLUE, "ip", "-6", "route", "show", "table", "all", "default", "dev", device)


def test_a_host_cannot_announce_itself_as_a_router(tenants: Tenants) -> None:
    host = tenants.blue(tenants.one)
    source = "fe80::5054:ff:fe00:100"
    prefix = ICMPv6NDOptPrefixInfo(prefix="fd00:bad::", prefixlen=64)
    advert = IPv6(src=source, dst="ff02::1", hlim=255) / ICMPv6ND_RA(routerlifetime=600)
    advert = frame(advert / prefix / ICMPv6NDOptSrcLLAddr(lladdr=tenants.mac), mac=tenants.mac, to="33:33:00:00:00:01")
    send(host, advert)
    assert default_routes(tenants) == ""

    without_filters(tenants.one, BLUE)
    device = tenants.one.ports["pf0"]
    tenants.one.in_domain(BLUE, "sh", "-c", f"echo 2 > /proc/sys/net/ipv6/conf/{device}/accept_ra")
    send(host, advert)
    eventually(lambda: source in default_routes(tenants), "with nothing in its way it would be believed")


def test_a_storm_of_a_host_is_answered_in_measure(tenants: Tenants) -> None:
    host = tenants.blue(tenants.one)
    asks = ARP(op=1, hwsrc=tenants.mac, psrc=HERE[0], pdst="10.1.0.2")
    storm = frame(asks, mac=tenants.mac, to="ff:ff:ff:ff:ff:ff")

    def is_answer(got: bytes) -> bool:
        packet = Ether(got)
        return ARP in packet and packet[ARP].op == 2

    def answered_share(patience_seconds: float) -> float:
        found = 0
        with ear(host) as heard:
            for _ in range(20):  # no more at once than the listener has room for
                send(host, storm, times=50)
                found += count_heard(heard, is_answer, seconds=patience_seconds, enough=50)
        return found / 1000

    assert 0 < answered_share(0.05) < 0.6
    without_filters(tenants.one, BLUE)
    assert answered_share(5.0) > 0.8, "with nothing in its way each one would be answered"


def tunnelled(vni: int, *, mac_of_dpu: str, source: str = THERE[0]) -> Packet:
    """In a tunnel's datagram, a packet to the host behind the first DPU."""
    inner = Ether(src=router_mac(TWO), dst=router_mac(ONE)) / udp(source, HERE[0])
    outer = Ether(src="02:00:00:00:00:63", dst=mac_of_dpu) / udp(STRANGER, ONE)
    outer[UDP].dport = 4789
    outer[UDP].remove_payload()
    return outer / VXLAN(vni=vni, flags=8) / inner


def underlay_mac(dpu: DPU) -> str:
    return str(json.loads(dpu.ip("-j", "link", "show", "uplink"))[0]["address"])


def test_a_stranger_on_the_underlay_cannot_send_into_a_vpc(tenants: Tenants) -> None:
    packet = tunnelled(BLUE, mac_of_dpu=underlay_mac(tenants.one))
    with ear(tenants.blue(tenants.one)) as heard:
        send(tenants.stranger, packet)
        assert is_silent(heard)
        without_filters(tenants.one)
        assert arrives(tenants.stranger, packet, heard), "with nothing in its way it would arrive"


def test_a_dpu_cannot_send_in_a_vni_that_is_not_its_own(tenants: Tenants) -> None:
    """The other DPU has lost its red host, and with it what it may send."""
    vpcs, ports = specs_of(ONE, TWO, HERE)
    assert tenants.one.enforce(spec([vpcs[0], vpc(RED)], ports)).agrees
    foreign = tunnelled(RED, mac_of_dpu=underlay_mac(tenants.one))
    own = tunnelled(BLUE, mac_of_dpu=underlay_mac(tenants.one))
    for each in (foreign, own):
        each[Ether].payload.src = TWO
    without_filters(tenants.one, RED)  # the underlay's filter alone is asked here
    with ear(tenants.red(tenants.one)) as red, ear(tenants.blue(tenants.one)) as blue:
        assert arrives(tenants.two, own, blue, device="uplink")
        send(tenants.two, foreign, device="uplink")
        assert is_silent(red)
        without_filters(tenants.one)
        assert arrives(tenants.two, foreign, red, device="uplink"), "with nothing in its way it would arrive"


@pytest.mark.parametrize("source", ["10.1.0.77", HERE[0]], ids=["nobody's", "our host's"])
def test_another_dpu_cannot_send_from_an_address_that_is_behind_none_or_behind_us(
    tenants: Tenants, source: str
) -> None:
    forged = tunnelled(BLUE, mac_of_dpu=underlay_mac(tenants.one), source=source)
    forged[Ether].payload.src = TWO
    with ear(tenants.blue(tenants.one)) as heard:
        send(tenants.two, forged, device="uplink")
        assert is_silent(heard)
        without_filters(tenants.one, BLUE)
        assert arrives(tenants.two, forged, heard, device="uplink"), "with nothing in its way it would arrive"


@pytest.mark.parametrize("address", ["203.0.113.9", ONE, "169.254.169.254"])
def test_a_host_reaches_no_bmc_no_dpu_and_no_metadata(tenants: Tenants, address: str) -> None:
    """The DPU itself reaches them; its twin routes for a host that is attached to the DPU's own namespace."""
    switch, one, host = tenants.network.switch, tenants.one, tenants.blue(tenants.one)
    switch.ip("addr", "add", "192.0.2.254/24", "dev", "br0")
    if address != ONE:
        switch.ip("addr", "add", f"{address}/32", "dev", "br0")
        one.ip("route", "add", address, "via", "192.0.2.254")
    switch.ip("route", "add", "10.1.0.2/31", "via", ONE)
    assert one.pings(address)
    assert not host.pings(address, patience_seconds=0.2)

    device = one.ports["pf0"]
    assert one.release().agrees
    one.ip("addr", "add", "10.1.0.2/31", "dev", device)
    one.ip("link", "set", device, "up")
    one.output("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
    assert any(host.pings(address, patience_seconds=0.7) for _ in range(60)), "without the agent it would be reached"
