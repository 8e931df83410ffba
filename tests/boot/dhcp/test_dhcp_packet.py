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
    (GOOD + bytes(opt.LONGEST_MESSAGE + 1 - len(GOOD)), Malformed.LONG),
    (GOOD[:1] + b"\x18\x08" + GOOD[3:], Malformed.NOT_ETHERNET),
    (GOOD[:1] + b"\x18" + GOOD[2:], Malformed.NOT_ETHERNET),
    (GOOD[:2] + b"\x08" + GOOD[3:], Malformed.BAD_MAC_LENGTH),
    (GOOD[:2] + b"\x00" + GOOD[3:], Malformed.BAD_MAC_LENGTH),
    (GOOD[:1] + b"\x06\x10" + GOOD[3:], Malformed.BAD_MAC_LENGTH),
    (GOOD[:1] + b"\x20\x00" + GOOD[3:], Malformed.INFINIBAND),
    (GOOD[:28] + b"\x01" + GOOD[29:], Malformed.BAD_MAC),
    (GOOD[:28] + bytes(6) + GOOD[34:], Malformed.BAD_MAC),
    (GOOD[:236] + b"\x63\x82\x53\x00" + GOOD[240:], Malformed.NO_COOKIE),
    (GOOD[:240] + b"\xff", Malformed.NO_MESSAGE_TYPE),
    (GOOD[:240] + b"\x35\x00\xff", Malformed.NO_MESSAGE_TYPE),
    (GOOD[:240] + b"\x35\x02\x01\x01\xff", Malformed.NO_MESSAGE_TYPE),
    (GOOD[:240] + b"\x35\x05\x01", Malformed.NO_MESSAGE_TYPE),
]


@pytest.mark.parametrize(("data", "reason"), BAD, ids=[f"{reason.value}-{n}" for n, (_, reason) in enumerate(BAD)])
def test_a_malformed_packet_is_dropped_for_its_reason(data: bytes, reason: Malformed) -> None:
    assert decode(data) is reason
    assert Responder().answer(data).verdict == reason


MALFORMED = {
    "requested address, empty": b"\x32\x00",
    "requested address, cut": b"\x32\x03abc",
    "server identifier, empty": b"\x36\x00",
    "server identifier, long": b"\x36\x05abcde",
    "message size, one byte": b"\x39\x01\x05",
    "message size, empty": b"\x39\x00",
    "message size, in two pieces that do not fit": b"\x39\x02\x05\xdc\x39\x02\x05\xdc",
    "client identifier, empty": b"\x3d\x00",
    "vendor class, empty": b"\x3c\x00",
    "user class, empty": b"\x4d\x00",
    "architecture, one byte": b"\x5d\x01\x07",
    "machine identifier, empty": b"\x61\x00",
    "relay information, empty": b"\x52\x00",
    "overload, long": b"\x34\x02\x01\x01",
    "overload, unknown": b"\x34\x01\x08",
}


@pytest.mark.parametrize("why", MALFORMED)
@pytest.mark.parametrize("end", [b"\xff", b"\x3c\x05abcd", b"\x3c"], ids=["", "and one cut at the end", "and one code"])
def test_a_malformed_option_costs_that_option_and_not_the_packet(why: str, end: bytes) -> None:
    told = {opt.RELAY_INFORMATION: b"\x01\x01x"} if "relay" not in why else {}
    answered = Responder().reply(message(opt.DISCOVER, options=told))
    reply = Responder().reply(message(opt.DISCOVER, options=told, end=MALFORMED[why] + end))
    assert reply.data == answered.data


def test_a_request_whose_requested_address_is_malformed_asks_for_nothing() -> None:
    data = message(opt.REQUEST, options={opt.REQUESTED_ADDRESS: b"abc"})
    assert Responder().answer(data).verdict == "dropped-no-requested-address"


def test_an_option_of_which_a_later_piece_is_cut_is_left_out_whole() -> None:
    packet = decode(message(opt.DISCOVER, options={opt.CLIENT_IDENTIFIER: b"one"}, end=b"\x3d\x09two"))
    assert isinstance(packet, Packet)
    assert opt.CLIENT_IDENTIFIER not in packet.options


def test_an_option_that_is_cut_in_the_file_field_costs_the_rest_of_that_field() -> None:
    data = bytearray(message(opt.DISCOVER, options={opt.OVERLOAD: b"\x03"}))
    data[108:112] = b"\x3c\x02hi"
    data[112:114] = b"\x5d\xff"
    data[44:49] = b"\x4d\x02yo\xff"
    packet = decode(bytes(data))
    assert isinstance(packet, Packet)
    assert (packet.options[opt.VENDOR_CLASS], packet.options[opt.USER_CLASS]) == (b"hi", b"yo")
    assert opt.CLIENT_ARCHITECTURE not in packet.options


def test_the_longest_message_is_read_to_its_end() -> None:
    pieces = b"".join(opt.encode_option(43, bytes(255)) for _ in range(34))
    room = opt.LONGEST_MESSAGE - len(message(opt.DISCOVER, end=pieces)) - 3
    data = message(opt.DISCOVER, end=pieces + bytes(room) + b"\x3c\x01x")
    assert len(data) == opt.LONGEST_MESSAGE
    packet = decode(data)
    assert isinstance(packet, Packet)
    assert packet.options[opt.VENDOR_CLASS] == b"x"


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
    assert verdicts == {"offered", Malformed.SHORT, Malformed.NO_MESSAGE_TYPE}


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
