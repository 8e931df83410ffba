"""What a tenant's root tries with DHCP; each attack succeeds once its defence is taken away.

Two tenants, blue and red, with the same addresses and the same hardware addresses, have a host behind each of two DPUs,
the first of which answers.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from provisioner.network.agent.model.naming import GATEWAY_MAC
from tests.network.agent.dhcp.clients import answering
from tests.network.agent.rack import Host
from tests.network.agent.specs import BLUE
from tests.network.isolation.frames import arrives, count_heard, ear, is_heard, is_silent, send
from tests.network.isolation.test_attacks import HERE, THERE, Tenants, tenants, without_filters

__all__ = ["tenants"]

OTHER_MAC = "52:54:00:99:99:99"
NOBODY, EVERYBODY, BROADCAST = "0.0.0.0", "255.255.255.255", "ff:ff:ff:ff:ff:ff"  # noqa: S104 - the sender of a packet
MINE, GATEWAY = HERE[0], "10.1.0.2"


@pytest.fixture
def answered(tenants: Tenants) -> Iterator[Tenants]:
    """The hosts of the first DPU may ask."""
    with answering(tenants.one, tenants.one.inside(tenants.one.enforcer.served)):
        assert is_answered(tenants.blue(tenants.one), asks(tenants.mac)), "who may ask is answered"
        yield tenants


def asks(mac: str, *, for_mac: str | None = None, source: str = NOBODY, kind: str = "discover") -> Packet:
    """By broadcast, from `mac`, for itself or another one."""
    body = BOOTP(op=1, chaddr=bytes.fromhex((for_mac or mac).replace(":", "")), xid=7)
    frame = Ether(src=mac, dst=BROADCAST) / IP(src=source, dst=EVERYBODY) / UDP(sport=68, dport=67)
    return frame / body / DHCP(options=[("message-type", kind), ("requested_addr", MINE), "end"])


def offers(mac: str, target: str, *, to: str = GATEWAY_MAC) -> Packet:
    """As a server of a host's own would."""
    body = BOOTP(op=2, chaddr=bytes(6), yiaddr="10.6.6.6", xid=7)
    frame = Ether(src=mac, dst=to) / IP(src=MINE, dst=target) / UDP(sport=67, dport=68)
    return frame / body / DHCP(options=[("message-type", "offer"), ("server_id", MINE), ("router", MINE), "end"])


def is_reply(got: bytes) -> bool:
    packet = Ether(got)
    return BOOTP in packet and packet[BOOTP].op == 2


def is_answered(host: Host, frame: Packet) -> bool:
    with ear(host) as heard:
        send(host, frame)
        return is_heard(heard, is_reply)


def is_ignored(host: Host, frame: Packet) -> bool:
    with ear(host) as heard:
        send(host, frame)
        return is_silent(heard, is_reply)


def test_another_mac_on_the_port_is_not_answered(answered: Tenants) -> None:
    host = answered.blue(answered.one)
    in_its_name = asks(OTHER_MAC, for_mac=answered.mac)
    assert is_ignored(host, asks(OTHER_MAC))
    assert is_ignored(host, in_its_name)
    assert is_answered(host, asks(answered.mac))
    without_filters(answered.one, BLUE)
    assert is_answered(host, in_its_name), "with nothing in its way it would be answered"
    assert is_ignored(host, asks(OTHER_MAC)), "for another MAC there is no answer in any case"


def test_a_host_that_says_it_has_anothers_address_is_not_answered(answered: Tenants) -> None:
    host = answered.blue(answered.one)
    assert is_answered(host, asks(answered.mac, source=MINE, kind="request"))
    assert is_ignored(host, asks(answered.mac, source=THERE[0], kind="request"))
    without_filters(answered.one, BLUE)
    assert is_answered(host, asks(answered.mac, source=THERE[0], kind="request")), "with nothing in its way it would be"


@pytest.mark.parametrize("target", [THERE[0], EVERYBODY], ids=["to a neighbour", "by broadcast"])
def test_a_host_that_plays_a_dhcp_server_is_not_heard(answered: Tenants, target: str) -> None:
    """By broadcast not even without the rules: nothing between two ports is a bridge."""
    honest, there = answered.blue(answered.one), answered.blue(answered.two)
    offer = offers(answered.mac, target, to=BROADCAST if target == EVERYBODY else GATEWAY_MAC)
    with ear(there) as heard:
        send(honest, offer)
        assert is_silent(heard, is_reply)
        for dpu in (answered.one, answered.two):
            without_filters(dpu, BLUE)
        send(honest, offer)
        assert (is_silent if target == EVERYBODY else is_heard)(heard, is_reply)


def test_a_host_asks_no_other_host_for_an_address(answered: Tenants) -> None:
    """It would be answered by who is asked, if that one's answers passed."""
    host, there = answered.blue(answered.one), answered.blue(answered.two)
    asked = asks(answered.mac, source=MINE)
    asked[Ether].dst, asked[IP].dst = GATEWAY_MAC, THERE[0]

    def is_question(got: bytes) -> bool:
        packet = Ether(got)
        return BOOTP in packet and packet[BOOTP].op == 1

    with ear(there) as heard:
        send(host, asked)
        assert is_silent(heard, is_question)
        for dpu in (answered.one, answered.two):
            without_filters(dpu, BLUE)
        assert arrives(host, asked, heard, is_question), "with nothing in its way it would arrive"


def test_nobody_but_the_host_hears_what_it_is_told(answered: Tenants) -> None:
    blue, red, there = (
        answered.blue(answered.one),
        answered.red(answered.one),
        answered.blue(answered.two),
    )
    with ear(red) as reds, ear(there) as theirs:
        assert is_answered(blue, asks(answered.mac))
        assert is_silent(reds, is_reply)
        assert is_silent(theirs, is_reply)


def test_a_flood_of_one_host_is_answered_in_measure_and_keeps_nobody_else_waiting(answered: Tenants) -> None:
    blue, red = answered.blue(answered.one), answered.red(answered.one)
    asked = asks(answered.mac)

    def answered_share(patience_seconds: float) -> float:
        found = 0
        with ear(blue) as heard:
            for _ in range(6):  # no more at once than the listener has room for
                send(blue, asked, times=50)
                found += count_heard(heard, is_reply, seconds=patience_seconds, enough=50)
                assert is_answered(red, asks(answered.mac))
        return found / 300

    assert 0 < answered_share(0.3) < 0.2
    without_filters(answered.one, BLUE)
    assert answered_share(10.0) > 0.8, "with nothing in its way each one would be answered"
