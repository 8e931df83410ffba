"""What the neighbour of a soak sends."""

from __future__ import annotations

import random

from provisioner.boot.dhcp.wire.packet import Malformed, Packet, decode
from tests.boot.dhcp.messages import CAPTURED, captured
from tests.soak.neighbour import frame, mutate


def test_of_its_dhcp_messages_some_are_understood_and_some_are_malformed() -> None:
    dice, understood, malformed = random.Random(1), 0, 0
    for _ in range(500):
        packet = decode(mutate(dice, captured(dice.choice(CAPTURED))))
        malformed += isinstance(packet, Malformed)
        understood += isinstance(packet, Packet)
    assert understood > 100
    assert malformed > 100


def test_a_frame_has_a_right_header_checksum_and_its_own_source() -> None:
    source = b"\x02abcde"
    sent = frame(b"hello", source)
    assert sent[:12] == b"\xff" * 6 + source
    header = sent[14:34]
    total = sum(int.from_bytes(header[place : place + 2], "big") for place in range(0, 20, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF
    assert sent.endswith(b"hello")
