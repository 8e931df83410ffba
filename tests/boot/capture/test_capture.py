"""Captured packets, as tcpdump and Wireshark write them, and as an enemy does."""

from __future__ import annotations

import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import CookedLinux, Dot1Q, Ether
from scapy.packet import Raw
from scapy.utils import PcapNgWriter, wrpcap

from provisioner.api.machinery.errors import Refused
from provisioner.boot.capture.read import LARGEST_FILE, MOST_MESSAGES, read_capture, read_datagram, read_messages
from provisioner.boot.dhcp.wire.describe import describe_message
from provisioner.boot.explain.replay import Replayed
from provisioner.cli.boot.replay_command import render_replayed
from tests.boot.dhcp.messages import CAPTURED, GOLDEN, captured

NAME = "x64-pxe-discover"


def frame(payload: bytes, *, tags: int = 0, port: int = 67) -> Any:
    ether = Ether(src="52:54:00:12:34:56", dst="ff:ff:ff:ff:ff:ff")
    for tag in range(tags):
        ether = ether / Dot1Q(vlan=tag + 1)
    return ether / IP(src="0.0.0.0", dst="255.255.255.255") / UDP(sport=68, dport=port) / Raw(payload)  # noqa: S104


@pytest.mark.parametrize("name", CAPTURED)
def test_every_form_of_a_capture_holds_the_same_message(name: str, tmp_path: Path) -> None:
    data = captured(name)
    files = {form: tmp_path / form for form in ("pcap", "nanoseconds", "big-endian", "pcapng", "hex", "frame.hex")}
    wrpcap(str(files["pcap"]), frame(data))
    wrpcap(str(files["nanoseconds"]), frame(data), nano=True)
    wrpcap(str(files["big-endian"]), frame(data), endianness=">")
    with PcapNgWriter(str(files["pcapng"])) as writer:
        writer.write(frame(data))
    files["hex"].write_bytes((GOLDEN / f"{name}.hex").read_bytes())
    files["frame.hex"].write_text(bytes(frame(data)).hex(":"))
    for form, file in files.items():
        (message,), has_more = read_capture(file)
        assert (message.data, has_more) == (data, False), form
        if form != "hex":
            assert message.datagram is not None, form
            assert message.datagram.source_port == 68, form


def test_frames_with_tags_cooked_captures_and_other_traffic(tmp_path: Path) -> None:
    file, data = tmp_path / "pcap", captured(NAME)
    wrpcap(str(file), [frame(data, tags=2), frame(b"dns", port=53) / Raw(b""), Ether() / Raw(b"\0" * 60)])
    messages, _ = read_capture(file)
    assert messages[0].data == data
    cooked = CookedLinux(proto=0x0800) / IP(src="10.80.0.1", dst="10.80.0.2") / UDP(sport=67, dport=67) / Raw(data)
    found = read_datagram(113, bytes(cooked))
    assert found is not None
    assert (found.source, found.destination, found.payload) == ("10.80.0.1", "10.80.0.2", data)


@pytest.mark.parametrize("dump", [
    "0000   01 01 06 00 12 34 56 78   ....4Vx\n0010   00 00\n",
    "00000000  01 01 06 00 12 34 56 78  00 00   |....4Vx..|\n",
        "00000000: 0101 0600 1234 5678 0000  ....4Vx..\n",
        "01010600 12345678 0000",
        "\t0x0000:  0101 0600 1234 5678 \n\t0x0010:  0000\n",
    "# a comment\n01010600\n12 34 56 78\n00:00\n",
])  # fmt: skip
def test_digits_as_programs_print_them(dump: str) -> None:
    (message,), _ = read_messages(dump.encode())
    assert message.data == bytes.fromhex("01010600123456780000")


@pytest.mark.parametrize("content", [b"hello", b"\x7fELF" * 20, "\u202e".encode(), b"0", b"\xff" * 99])
def test_what_is_no_capture_is_refused_in_words(content: bytes) -> None:
    with pytest.raises(Refused, match="no pcap, no pcapng, and no hexadecimal digits"):
        read_messages(content)


def test_a_file_that_is_too_large_or_not_there_is_refused(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as stream:
        stream.truncate(LARGEST_FILE + 1)
    with pytest.raises(Refused, match="larger than 64 MiB"):
        read_capture(large)
    with pytest.raises(Refused, match="cannot be read"):
        read_capture(tmp_path / "missing")


def test_of_many_messages_the_first_are_read(tmp_path: Path) -> None:
    file = tmp_path / "pcap"
    wrpcap(str(file), [frame(captured(NAME))] * (MOST_MESSAGES + 3))
    messages, has_more = read_capture(file)
    assert (len(messages), has_more) == (MOST_MESSAGES, True)


def test_a_capture_that_was_cut_gives_what_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "pcap"
    wrpcap(str(file), [frame(captured(NAME))] * 3)
    whole = file.read_bytes()
    for cut in range(24, len(whole), 97):
        messages, _ = read_messages(whole[:cut])
        assert len(messages) <= 3
        assert all(each.data == captured(NAME) for each in messages)


def _pcapng() -> bytes:
    written = BytesIO()
    section = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
    interface = struct.pack("<IIHHII", 1, 20, 1, 0, 0, 20)
    data = bytes(frame(captured(NAME)))
    padded = data + bytes(-len(data) % 4)
    size = 32 + len(padded)
    packet = struct.pack("<IIIIIII", 6, size, 0, 0, 0, len(data), len(data)) + padded + struct.pack("<I", size)
    simple = struct.pack("<III", 3, 16 + len(padded), len(data)) + padded + struct.pack("<I", 16 + len(padded))
    written.write(section + interface + packet + simple)
    return written.getvalue()


def test_a_simple_block_is_read_too() -> None:
    messages, _ = read_messages(_pcapng())
    assert [each.data for each in messages] == [captured(NAME)] * 2


@pytest.mark.parametrize("resolution", [0, 6, 9, 0x80, 0xFF])
def test_a_packet_dated_beyond_all_calendars_is_told_with_the_others(resolution: int) -> None:
    clock = struct.pack("<IIHHIHHB3xI", 1, 28, 1, 0, 0, 9, 1, resolution, 28)
    honest = _pcapng()
    section, packets = honest[:28], honest[48:]
    number = struct.calcsize("<III")
    dated = packets[:number] + b"\xff" * 8 + packets[number + 8 :]
    messages, _ = read_messages(section + clock + dated)
    assert [each.data for each in messages] == [captured(NAME)] * 2
    for each in messages:
        told = render_replayed(
            1, Replayed(captured=each, described=describe_message(each.data), server=None, lease=None, way=None)
        )
        assert "DISCOVER" in told


def test_the_time_of_a_packet_is_told() -> None:
    packets = struct.pack("<IHHIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    data = bytes(frame(captured(NAME)))
    (message,), _ = read_messages(packets + struct.pack("<IIII", 1_700_000_000, 250_000, len(data), len(data)) + data)
    assert message.time == 1_700_000_000.25


@settings(max_examples=300)
@given(
    prefix=st.sampled_from(
        [b"", b"\xd4\xc3\xb2\xa1", b"\xa1\xb2\xc3\xd4", b"\x0a\x0d\x0d\x0a", _pcapng()[:28], _pcapng()]
    ),
    noise=st.binary(max_size=400),
)
def test_a_hostile_file_is_read_or_refused_and_nothing_else(prefix: bytes, noise: bytes) -> None:
    try:
        messages, _ = read_messages(prefix + noise)
    except Refused:
        return
    assert len(messages) <= MOST_MESSAGES


@settings(max_examples=300)
@given(st.data())
def test_a_capture_with_bytes_turned_over_is_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(_pcapng())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_messages(bytes(content))
    except Refused:
        return


@settings(max_examples=200)
@given(link_type=st.sampled_from([0, 1, 12, 14, 101, 108, 113, 228, 276, 9999]), data=st.binary(max_size=200))
def test_a_frame_is_a_datagram_or_none(link_type: int, data: bytes) -> None:
    found = read_datagram(link_type, data)
    assert found is None or len(found.payload) <= len(data)
