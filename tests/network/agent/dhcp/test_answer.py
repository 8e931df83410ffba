"""What RFC 2131 has a server answer, for a port with one host that has one address."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.network.agent.dhcp.answer import LEASE_SECONDS, REBIND_SECONDS, RENEW_SECONDS, answer
from provisioner.network.agent.dhcp.wire import Reply, decode
from tests.network.agent.dhcp.messages import ADDRESS, OTHER_MAC, PORT, message, read

NETWORK = {"subnet_mask": "255.255.255.254", "router": "10.1.0.2", "interface-mtu": 1450, "server_id": "10.1.0.2"}
LEASE = {"lease_time": LEASE_SECONDS, "renewal_time": RENEW_SECONDS, "rebinding_time": REBIND_SECONDS}
NONE = "0.0.0.0"  # noqa: S104 - no address
EVERYBODY = "255.255.255.255"
OFFER, ACK, NAK = 2, 5, 6


def told(kind: str, *options: tuple[str, Any], **fields: Any) -> Reply | None:
    request = decode(message(kind, *options, **fields))
    assert request is not None
    return answer(request, PORT)


def test_who_looks_for_a_server_is_offered_the_hosts_address_whatever_it_would_like() -> None:
    for options in ((), (("requested_addr", "10.9.9.9"),)):
        reply = told("discover", *options)
        assert reply is not None
        packet, said = read(reply)
        assert said == {"message-type": OFFER, **NETWORK, **LEASE}
        assert (packet.yiaddr, packet.ciaddr, packet.siaddr, packet.giaddr) == ("10.1.0.3", NONE, NONE, NONE)
        assert reply.to == ADDRESS


def test_who_cannot_hear_before_it_has_an_address_is_told_by_broadcast() -> None:
    for kind, options in (("discover", ()), ("request", (("requested_addr", "10.1.0.3"),))):
        reply = told(kind, *options, flags=0x8000)
        assert reply is not None
        assert str(reply.to) == EVERYBODY
    renewed = told("request", ciaddr="10.1.0.3", flags=0x8000)
    assert renewed is not None
    assert renewed.to == ADDRESS, "it can be reached by its address"


Said = tuple[tuple[tuple[str, Any], ...], dict[str, Any]]

CONFIRMED: dict[str, Said] = {
    "takes the offer": ((("requested_addr", "10.1.0.3"), ("server_id", "10.1.0.2")), {}),
    "remembers its address": ((("requested_addr", "10.1.0.3"),), {}),
    "renews, or asks any server": ((), {"ciaddr": "10.1.0.3"}),
}


@pytest.mark.parametrize("what", CONFIRMED)
def test_the_hosts_own_address_is_confirmed(what: str) -> None:
    options, fields = CONFIRMED[what]
    reply = told("request", *options, **fields)
    assert reply is not None
    packet, said = read(reply)
    assert said == {"message-type": ACK, **NETWORK, **LEASE}
    assert (packet.yiaddr, packet.ciaddr, reply.to) == ("10.1.0.3", fields.get("ciaddr", NONE), ADDRESS)


REFUSED: dict[str, Said] = {
    "takes an offer that was not made": ((("requested_addr", "10.9.9.9"), ("server_id", "10.1.0.2")), {}),
    "remembers another address": ((("requested_addr", "10.9.9.9"),), {}),
    "renews another address": ((), {"ciaddr": "10.9.9.9"}),
    "has one and remembers another": ((("requested_addr", "10.1.0.3"),), {"ciaddr": "10.9.9.9"}),
    "asks for its gateway's address": ((("requested_addr", "10.1.0.2"),), {}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_another_address_is_refused_by_broadcast_so_that_a_host_that_moved_asks_anew(what: str) -> None:
    options, fields = REFUSED[what]
    reply = told("request", *options, **fields)
    assert reply is not None
    packet, said = read(reply)
    assert said == {"message-type": NAK, "server_id": "10.1.0.2"}
    assert (packet.yiaddr, packet.ciaddr, str(reply.to)) == (NONE, NONE, EVERYBODY)


def test_who_has_an_address_and_wants_the_rest_is_told_it_without_a_lease() -> None:
    reply = told("inform", ciaddr="10.1.0.3")
    assert reply is not None
    packet, said = read(reply)
    assert said == {"message-type": ACK, **NETWORK}
    assert (packet.yiaddr, packet.ciaddr, reply.to) == (NONE, "10.1.0.3", ADDRESS)


SILENCE: dict[str, tuple[str, tuple[tuple[str, Any], ...], dict[str, Any]]] = {
    "takes another server's offer": ("request", (("requested_addr", "10.1.0.3"), ("server_id", "10.1.0.9")), {}),
    "requests nothing": ("request", (), {}),
    "gives its address back": ("release", (("server_id", "10.1.0.2"),), {"ciaddr": "10.1.0.3"}),
    "finds its address taken": ("decline", (("requested_addr", "10.1.0.3"), ("server_id", "10.1.0.2")), {}),
    "informs of another address": ("inform", (), {"ciaddr": "10.9.9.9"}),
    "informs of none": ("inform", (), {}),
    "has another hardware address": ("discover", (), {"mac": OTHER_MAC}),
    "requests with another hardware address": ("request", (("requested_addr", "10.1.0.3"),), {"mac": OTHER_MAC}),
}


@pytest.mark.parametrize("who", SILENCE)
def test_there_is_no_answer_for_who(who: str) -> None:
    kind, options, fields = SILENCE[who]
    assert told(kind, *options, **fields) is None


def test_a_host_renews_long_before_its_lease_is_over() -> None:
    assert RENEW_SECONDS * 24 <= REBIND_SECONDS < LEASE_SECONDS
