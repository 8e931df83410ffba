"""Captured packets against the inventory: what our responder would answer, by the responder itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.api.machinery.errors import Refused
from provisioner.boot.capture.read import CapturedMessage, Datagram
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.explain.facts import BootHost
from provisioner.boot.explain.replay import Replayed, macs_of_clients, replay
from provisioner.cli.boot.replay_command import render_replayed
from tests.boot.dhcp.messages import (
    CAPTURED,
    DISCOVERY,
    KNOWN_MAC,
    SERVER,
    UNKNOWN_MAC,
    Responder,
    captured,
    message,
    rack,
    request_of,
    server,
    subnet,
)

HOST = BootHost.at(SERVER)
RACKS = [
    rack("r01", subnet(discovery=DISCOVERY)),
    rack("r02", subnet("far", "10.90.0.0/24", gateway="10.90.0.1", relays=("10.90.0.1",))),
]


def replayed(*packets: bytes | CapturedMessage, via: str | None = None, **of_server: object) -> list[Replayed]:
    messages = [each if isinstance(each, CapturedMessage) else CapturedMessage(0.0, each, None) for each in packets]
    return list(replay(messages, RACKS, [server(**of_server)], HOST, via))  # type: ignore[arg-type]


def verdicts(*packets: bytes | CapturedMessage, via: str | None = None) -> list[str | None]:
    return [each.lease.verdict if each.lease else None for each in replayed(*packets, via=via)]


def test_a_registered_server_is_offered_its_address_and_then_given_it() -> None:
    discovered, requested = replayed(message(opt.DISCOVER), request_of("10.80.0.21"))
    assert discovered.server == "r01-u01"
    assert discovered.lease is not None
    assert discovered.lease.reply is not None
    assert (discovered.lease.verdict, discovered.lease.reply.your_address) == ("offered", "10.80.0.21")
    assert requested.lease is not None
    assert requested.lease.verdict == "acknowledged"


def test_what_was_lent_is_remembered_from_packet_to_packet() -> None:
    (offered,) = replayed(message(opt.DISCOVER, UNKNOWN_MAC))
    assert offered.lease is not None
    assert offered.lease.reply is not None
    lent = offered.lease.reply.your_address
    assert lent is not None
    exchange = (message(opt.DISCOVER, UNKNOWN_MAC), request_of(lent, UNKNOWN_MAC), request_of("10.80.0.9", UNKNOWN_MAC))
    assert verdicts(*exchange) == ["offered-lent", "acknowledged-lent", "refused"]


def test_a_broadcast_comes_in_where_it_is_said_to() -> None:
    assert verdicts(message(opt.DISCOVER), via="10.90.0.1") == ["dropped-wrong-subnet"]
    assert verdicts(message(opt.DISCOVER), via="172.16.0.1") == ["dropped-unknown-relay"]
    with pytest.raises(Refused, match="no IPv4 address"):
        verdicts(message(opt.DISCOVER), via="here")


def test_a_relayed_or_renewing_packet_says_itself_where_it_comes_from() -> None:
    assert verdicts(message(opt.DISCOVER, giaddr="10.90.0.1"), via="10.80.0.1") == ["dropped-wrong-subnet"]
    data = message(opt.REQUEST, ciaddr="10.80.0.21")
    renews = CapturedMessage(0.0, data, Datagram("10.80.0.21", 68, SERVER, 67, data))
    assert verdicts(renews) == ["acknowledged"]


def test_the_answer_of_another_server_is_shown_and_not_answered() -> None:
    answer = Responder().answer(message(opt.DISCOVER)).reply
    assert answer is not None
    (shown,) = replayed(answer)
    assert (shown.lease, shown.server) == (None, "r01-u01")
    assert "OFFER" in render_replayed(1, shown)
    assert "by another DHCP server, or ours at that time" in render_replayed(1, shown)


def test_only_clients_are_looked_for() -> None:
    answer = Responder().answer(message(opt.DISCOVER, UNKNOWN_MAC)).reply
    assert answer is not None
    packets = [CapturedMessage(0.0, each, None) for each in (answer, message(opt.DISCOVER), b"", b"\x01" * 10)]
    assert macs_of_clients(packets) == {KNOWN_MAC}


@pytest.mark.parametrize("name", CAPTURED)
def test_it_is_what_the_responder_answers(name: str) -> None:
    """The same verdict as of a boot host that hears the captured packet in the rack's own network."""
    expected = Responder(*RACKS, server()).answer(captured(name)).verdict
    assert verdicts(captured(name), via="10.80.0.1") == [expected]


@settings(max_examples=200)
@given(st.binary(max_size=600), st.booleans())
def test_whatever_is_captured_is_shown_in_characters_that_show_themselves(noise: bytes, whole: bool) -> None:
    data = message(opt.DISCOVER, end=b"") + noise if whole else noise
    (shown,) = replayed(data)
    text = render_replayed(1, shown)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert len(text) < 40_000
