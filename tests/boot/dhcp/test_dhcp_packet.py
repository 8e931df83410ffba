"""The decoder: what real clients send is understood; all else is dropped with a reason and never raises."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.packet import Malformed, Packet, decode, relay_link
from tests.boot.dhcp.messages import CAPTURED, KNOWN_MAC, Responder, captured, mac_bytes, message

REASONS = set(Malformed)


@pytest.mark.parametrize("name", CAPTURED)
def test_what_real_clients_send_is_understood(name: str) -> None:
    packet = decode(captured(name))
    assert isinstance(packet, Packet)
    wanted = {"discover": opt.DISCOVER, "request": opt.REQUEST}[name.rsplit("-", 1)[1]]
    assert packet.message_type == wanted
    assert packet.mac.hex(":").startswith("52:54:00:aa:00:")


def test_there_are_captured_packets() -> None:
    assert {"x64-pxe-discover", "x64-http-discover", "arm64-pxe-discover", "bios-rom-ipxe-request"} <= set(CAPTURED)


GOOD = message(opt.DISCOVER)

BAD = [
    (GOOD[:239], Malformed.SHORT),
    (b"", Malformed.SHORT),
    (b"\x02" + GOOD[1:], Malformed.NOT_REQUEST),
    (GOOD[:1] + b"\x20" + GOOD[2:], Malformed.NOT_ETHERNET),
    (GOOD[:2] + b"\x08" + GOOD[3:], Malformed.NOT_ETHERNET),
    (GOOD[:28] + b"\x01" + GOOD[29:], Malformed.BAD_MAC),
    (GOOD[:28] + bytes(6) + GOOD[34:], Malformed.BAD_MAC),
    (GOOD[:236] + b"\x63\x82\x53\x00" + GOOD[240:], Malformed.NO_COOKIE),
    (GOOD[:-1] + b"\x3c", Malformed.TRUNCATED_OPTION),
    (GOOD[:-1] + b"\x3c\x05abcd", Malformed.TRUNCATED_OPTION),
    (GOOD[:240] + b"\xff", Malformed.NO_MESSAGE_TYPE),
    (GOOD[:240] + b"\x35\x00\xff", Malformed.BAD_OPTION),
    (GOOD[:240] + b"\x35\x02\x01\x01\xff", Malformed.BAD_OPTION),
    (message(opt.DISCOVER, options={opt.REQUESTED_ADDRESS: b"abc"}), Malformed.BAD_OPTION),
    (message(opt.DISCOVER, options={opt.SERVER_IDENTIFIER: b"abcde"}), Malformed.BAD_OPTION),
    (message(opt.DISCOVER, options={opt.MAXIMUM_MESSAGE_SIZE: b"a"}), Malformed.BAD_OPTION),
    (message(opt.DISCOVER, options={opt.OVERLOAD: b"\x01\x01"}), Malformed.TRUNCATED_OPTION),
    (GOOD[:108] + b"\x3c\xff" + GOOD[110:-1] + b"\x34\x01\x01\xff", Malformed.TRUNCATED_OPTION),
]


@pytest.mark.parametrize(("data", "reason"), BAD, ids=[f"{reason.value}-{n}" for n, (_, reason) in enumerate(BAD)])
def test_a_malformed_packet_is_dropped_for_its_reason(data: bytes, reason: Malformed) -> None:
    assert decode(data) is reason
    assert Responder().answer(data).verdict == reason


def test_an_option_in_several_pieces_is_joined() -> None:
    data = message(opt.DISCOVER, options={opt.CLIENT_IDENTIFIER: b"one"}, end=b"\x3d\x03two\xff")
    packet = decode(data)
    assert isinstance(packet, Packet)
    assert packet.options[opt.CLIENT_IDENTIFIER] == b"onetwo"


def test_options_continue_in_the_file_and_name_fields_where_option_52_says_so() -> None:
    data = bytearray(message(opt.DISCOVER, options={opt.OVERLOAD: b"\x03"}))
    data[108:113] = b"\x3c\x02hi\xff"
    data[44:49] = b"\x4d\x02yo\xff"
    packet = decode(bytes(data))
    assert isinstance(packet, Packet)
    assert packet.options[opt.VENDOR_CLASS] == b"hi"
    assert packet.options[opt.USER_CLASS] == b"yo"


def test_a_missing_end_option_and_padding_are_forgiven() -> None:
    assert isinstance(decode(message(opt.DISCOVER, end=b"")), Packet)
    assert isinstance(decode(message(opt.DISCOVER, end=b"\0\0\0\x3c\x01x\0\xff\0\0junk")), Packet)


@given(st.binary(max_size=700))
def test_noise_never_raises(data: bytes) -> None:
    assert isinstance(decode(data), Packet) or decode(data) in REASONS


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_noise_behind_a_good_header_never_raises_anywhere_on_the_way(options: bytes) -> None:
    responder = Responder()
    outcome = responder.answer(GOOD[:240] + options)
    assert outcome.verdict
    assert outcome.reply is None or len(outcome.reply) >= opt.MINIMUM_REPLY_BYTES


@settings(max_examples=300)
@given(
    st.sampled_from(CAPTURED),
    st.lists(st.tuples(st.integers(0, 419), st.integers(0, 255)), max_size=6),
    st.integers(0, 420),
)
def test_captured_packets_that_were_damaged_never_raise(name: str, damage: list[tuple[int, int]], length: int) -> None:
    data = bytearray(captured(name)[:length])
    for at, value in damage:
        if at < len(data):
            data[at] = value
    outcome = Responder().answer(bytes(data))
    assert outcome.verdict


def test_every_truncation_of_a_packet_is_an_answer_or_a_reason() -> None:
    data = captured("x64-pxe-discover").replace(bytes.fromhex("525400aa0001"), mac_bytes(KNOWN_MAC))
    verdicts = {Responder().answer(data[:length]).verdict for length in range(len(data))}
    assert "offered" in verdicts
    assert Malformed.SHORT in verdicts
    assert Malformed.TRUNCATED_OPTION in verdicts


@pytest.mark.parametrize(
    ("value", "link"),
    [
        (b"", None),
        (b"\x01\x04port", None),
        (b"\x01\x04port\x05\x04\x0a\x50\x00\x00", b"\x0a\x50\x00\x00"),
        (b"\x05\x04\x0a\x50", None),
        (b"\x05\x03\x0a\x50\x00", None),
        (b"\x05", None),
    ],
)
def test_the_link_selection_of_a_relay_is_read_only_where_well_formed(value: bytes, link: bytes | None) -> None:
    assert relay_link(value) == link


@given(st.binary(max_size=300))
def test_noise_in_option_82_never_raises(value: bytes) -> None:
    found = relay_link(value)
    assert found is None or len(found) == 4
