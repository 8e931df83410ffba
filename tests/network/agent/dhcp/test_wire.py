"""What hosts send is read strictly, whatever it is; what they are told is what others read, too."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tests
from provisioner.network.agent.dhcp.answer import answer
from provisioner.network.agent.dhcp.served import ServedPort
from provisioner.network.agent.dhcp.wire import LONGEST_REQUEST, HostMessage, MessageType, decode, encode
from tests.network.agent.dhcp.messages import ADDRESS, GATEWAY, MAC, PORT, message, read

CAPTURED = sorted((Path(tests.__path__[0]) / "golden" / "dhcp").glob("*.hex"))
DISCOVER = message("discover")
OPTIONS_AT = 240


@pytest.mark.parametrize("path", CAPTURED, ids=[each.stem for each in CAPTURED])
def test_what_real_clients_and_firmware_send_is_understood(path: Path) -> None:
    words = "".join(line for line in path.read_text().splitlines() if not line.startswith("#"))
    request = decode(bytes.fromhex(words))
    assert request is not None
    assert request.kind == (MessageType.DISCOVER if path.stem.endswith("discover") else MessageType.REQUEST)
    assert request.mac.startswith("52:54:00:aa:00:")
    assert (request.requested is not None) or request.kind is MessageType.DISCOVER


def test_all_of_a_request_is_read() -> None:
    said = message(
        "request", ("requested_addr", "10.1.0.3"), ("server_id", "10.1.0.2"), ("client_id", b"\1abcdef"), flags=0x8000
    )
    assert decode(said) == HostMessage(
        kind=MessageType.REQUEST,
        transaction=0x1234ABCD,
        mac=MAC,
        requested=ADDRESS,
        server=GATEWAY,
        wants_broadcast=True,
        identifier=b"\1abcdef",
    )


def changed(at: int, *octets: int) -> bytes:
    return DISCOVER[:at] + bytes(octets) + DISCOVER[at + len(octets) :]


REFUSED = {
    "nothing": b"",
    "a header without options": DISCOVER[: OPTIONS_AT - 1],
    "one without a message type": DISCOVER[:OPTIONS_AT] + b"\xff",
    "no end and no options": DISCOVER[:OPTIONS_AT],
    "more than a frame holds": DISCOVER + bytes(LONGEST_REQUEST),
    "a reply": changed(0, 2),
    "another kind of network": changed(1, 32),
    "another length of a hardware address": changed(2, 8),
    "a relay": changed(24, 10, 1, 0, 1),
    "no cookie": changed(236, 0),
    "a message of a server": message("offer"),
    "a message of no kind": DISCOVER[:OPTIONS_AT] + b"\x35\1\x2a\xff",
    "two message types": DISCOVER[:OPTIONS_AT] + b"\x35\1\1\x35\1\3\xff",
    "a message type of two bytes": DISCOVER[:OPTIONS_AT] + b"\x35\2\1\1\xff",
    "an empty address": DISCOVER[:OPTIONS_AT] + b"\x35\1\1\x32\0\xff",
    "an address of three bytes": DISCOVER[:OPTIONS_AT] + b"\x35\1\1\x32\3\1\2\3\xff",
    "a server's address in two pieces too many": DISCOVER[:OPTIONS_AT] + b"\x35\1\1" + b"\x36\4\1\2\3\4" * 2 + b"\xff",
    "an option that reaches beyond the end": DISCOVER[:OPTIONS_AT] + b"\x35\1\1\x32\4\1\2\3",
    "an option without a length": DISCOVER[:OPTIONS_AT] + b"\x35\1\1\x32",
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_request_is_none(what: str) -> None:
    assert decode(DISCOVER) is not None
    assert decode(REFUSED[what]) is None


def test_pads_and_a_missing_end_are_nothing_wrong() -> None:
    assert decode(DISCOVER[:OPTIONS_AT] + b"\0\0\x35\1\1") is not None
    assert decode(DISCOVER[:OPTIONS_AT] + b"\x35\1\1\xff\x32\4\1") is not None, "after the end there is nothing"


def answered(data: bytes, port: ServedPort = PORT) -> bytes | None:
    request = decode(data)
    reply = None if request is None else answer(request, port)
    return None if reply is None else encode(reply)


@given(st.binary(max_size=700))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    answered(data)
    answered(DISCOVER[:OPTIONS_AT] + data)


@given(st.data())
def test_whatever_is_changed_in_a_message_the_answer_names_no_address_but_the_ports_own(data: st.DataObject) -> None:
    said = bytearray(message("request", ("requested_addr", "10.1.0.3"), ("client_id", b"\1abcdef")))
    for _ in range(data.draw(st.integers(1, 8))):
        said[data.draw(st.integers(0, len(said) - 1))] = data.draw(st.integers(0, 255))
    reply = answered(bytes(said))
    if reply is not None:
        packet, options = read(reply)
        assert packet.yiaddr in ("10.1.0.3", "0.0.0.0")  # noqa: S104 - none
        assert packet.ciaddr in ("10.1.0.3", "0.0.0.0")  # noqa: S104 - none
        assert options["server_id"] == "10.1.0.2"
        assert packet.chaddr[:6] == bytes.fromhex(MAC.replace(":", ""))


@given(identifier=st.binary(min_size=1, max_size=255), transaction=st.integers(0, 2**32 - 1), flag=st.booleans())
def test_an_answer_fits_every_client_and_brings_back_what_it_knows_it_by(
    identifier: bytes, transaction: int, flag: bool
) -> None:
    request = HostMessage(
        kind=MessageType.DISCOVER, transaction=transaction, mac=MAC, wants_broadcast=flag, identifier=identifier
    )
    reply = answer(request, PORT)
    assert reply is not None
    data = encode(reply)
    assert 300 <= len(data) <= 576 - 28
    packet, options = read(data)
    assert (packet.op, packet.xid, int(packet.flags) >> 15) == (2, transaction, int(flag))
    assert bytes((61, len(identifier))) + identifier in data
    assert options["message-type"] == 2


def test_an_identifier_that_no_option_can_say_is_not_brought_back() -> None:
    long = b"\x3d\xff" + bytes(255) + b"\x3d\4abcd"
    request = decode(DISCOVER[:OPTIONS_AT] + b"\x35\1\1" + long + b"\xff")
    assert request is not None
    assert request.identifier is None


def test_an_address_is_read_as_it_stands() -> None:
    request = decode(message("inform", ciaddr="10.1.0.3"))
    assert request is not None
    assert request.has == IPv4Address("10.1.0.3")
