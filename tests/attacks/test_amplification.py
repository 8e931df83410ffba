"""The boot host is not to be used against others: what it sends for a forged packet is little more than the packet, and
goes to nobody outside of the subnets that it serves. docs/threat-model.md, "Whoever reaches the boot host"."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.boot.dhcp.responder.respond import PacketOutcome
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire import reply as reply_module
from provisioner.boot.dhcp.wire.packet import Packet
from tests.boot.dhcp.messages import (
    CAPTURED,
    DIRECT,
    KNOWN_MAC,
    UNICAST,
    UNKNOWN_MAC,
    Responder,
    address,
    captured,
    message,
)

VICTIM = "198.51.100.7"
SERVED = IPv4Network("10.80.0.0/24")
LONGEST_REPLY = opt.MINIMUM_MESSAGE_LIMIT - opt.IP_UDP_HEADER_BYTES
"""What every client must accept. Only a relay's own option, which it takes out again, comes on top."""

NOBODY = "0.0.0.0"  # noqa: S104 - no address, not a bind
ADDRESSES = st.sampled_from([VICTIM, "10.80.0.21", "10.80.0.99", "10.80.0.1", "255.255.255.255", "224.0.0.1", NOBODY])
OPTIONS = st.dictionaries(
    st.sampled_from(
        [opt.REQUESTED_ADDRESS, opt.MAXIMUM_MESSAGE_SIZE, opt.CLIENT_IDENTIFIER, opt.VENDOR_CLASS,
         opt.RELAY_INFORMATION, opt.MACHINE_IDENTIFIER, opt.CLIENT_ARCHITECTURE, opt.USER_CLASS]
    ),
    st.binary(min_size=1, max_size=255) | st.sampled_from([b"\xff\xff", b"HTTPClient", b"iPXE", address(VICTIM)]),
)  # fmt: skip


def goes_where_it_may(outcome: PacketOutcome) -> bool:
    if outcome.reply is None or outcome.destination is None:
        return True
    to = IPv4Address(outcome.destination.host)
    return to in SERVED or outcome.destination.host == reply_module.BROADCAST


@settings(max_examples=300)
@given(
    st.integers(1, 8), st.sampled_from([KNOWN_MAC, UNKNOWN_MAC]), ADDRESSES, ADDRESSES, OPTIONS,
    st.sampled_from([DIRECT, UNICAST]),
)  # fmt: skip
def test_no_packet_has_anything_sent_outside_of_what_is_served_or_much_more_than_it_brought(
    kind: int, mac: str, ciaddr: str, giaddr: str, options: dict[int, bytes], arrival: reply_module.Arrival
) -> None:
    data = message(kind, mac, ciaddr=ciaddr, giaddr=giaddr, options=options)
    outcome = Responder().answer(data, arrival)
    assert goes_where_it_may(outcome), outcome.destination
    of_relay = len(options.get(opt.RELAY_INFORMATION, b""))
    assert len(outcome.reply or b"") <= max(LONGEST_REPLY, len(data) + 300) + of_relay + 4


@pytest.mark.parametrize("name", CAPTURED)
def test_a_real_packet_is_answered_by_at_most_twice_its_bytes(name: str) -> None:
    data = captured(name)
    assert len(Responder().answer(data).reply or b"") <= 2 * len(data)


@pytest.mark.parametrize("kind", [opt.DISCOVER, opt.REQUEST, opt.INFORM])
def test_who_says_that_it_has_a_victims_address_has_nothing_sent_there(kind: int) -> None:
    asks = message(kind, ciaddr=VICTIM, options={opt.REQUESTED_ADDRESS: address("10.80.0.21")})
    outcome = Responder().answer(asks, DIRECT)
    assert outcome.destination is None or outcome.destination.host != VICTIM


def test_a_forged_address_succeeds_without_the_rule_where_an_offer_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it is with a server that believes that field of a DISCOVER."""

    def believe(packet: Packet, *_: object, **__: object) -> reply_module.Destination:
        return reply_module.Destination(str(IPv4Address(packet.ciaddr)), 68)

    monkeypatch.setattr("provisioner.boot.dhcp.responder.respond.destination", believe)
    outcome = Responder().answer(message(opt.DISCOVER, ciaddr=VICTIM), DIRECT)
    assert (outcome.verdict, goes_where_it_may(outcome)) == ("offered", False)


def test_a_relay_that_nobody_knows_has_nothing_sent_to_it() -> None:
    for arrival in (DIRECT, UNICAST):
        assert Responder().answer(message(opt.DISCOVER, giaddr=VICTIM), arrival).reply is None


def test_a_relay_of_a_strangers_succeeds_without_the_list_of_relays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is with a server that takes who says to be a relay for one of the subnet that the packet came from."""
    monkeypatch.setattr(
        "provisioner.boot.dhcp.responder.respond._link",
        lambda giaddr, ciaddr, options, arrival, table: table.link_of_addresses(arrival.addresses),
    )
    outcome = Responder().answer(message(opt.DISCOVER, giaddr=VICTIM), DIRECT)
    assert (outcome.verdict, goes_where_it_may(outcome)) == ("offered", False)


def test_more_is_sent_than_it_may_be_without_the_bound_of_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that come back are kept out of a reply that has no room for them: a server that is silent about that
    sends what firmware has never accepted."""
    asks = message(
        opt.DISCOVER, options={opt.CLIENT_IDENTIFIER: b"i" * 250, opt.MACHINE_IDENTIFIER: b"m" * 250,
                               opt.VENDOR_CLASS: b"PXEClient"},
    )  # fmt: skip
    assert len(Responder().answer(asks).reply or b"") <= LONGEST_REPLY
    monkeypatch.setattr(reply_module, "message_limit", lambda options: 65535)
    assert len(Responder().answer(asks).reply or b"") > LONGEST_REPLY
