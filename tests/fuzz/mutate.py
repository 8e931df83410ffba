"""Good input made worse: the same from the same dice."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

_ODD: Final = (
    b"\x00", b"\xff", b"\x00" * 8, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80", b"\r\n", b"\n\n", b"%00", b"..",
    b"\x1b[2J", b"\xed\xa0\x80", b"\\ud800", b"\xc0\xaf", b"-1", b"1e999", b"9" * 40, b"0x", b"{", b"[", b'"', b"\\",
    b":" * 9, b" " * 64, "\u2028".encode(), "\u0661".encode(), "\u01c4".encode(), "\ufdfa".encode(),
)  # fmt: skip


def mutate(dice: random.Random, seeds: Sequence[bytes], *, most_bytes: int) -> bytes:
    """One of the seeds with one to eight changes; now and then two in one, one a hundred times, or noise."""
    match dice.randrange(40):
        case 0:
            return dice.randbytes(dice.randrange(200))
        case 1:
            one = dice.choice(seeds)
            return (one * (most_bytes // max(1, len(one)) + 1))[: most_bytes + 1]
    data = bytearray(dice.choice(seeds))
    for _ in range(dice.choice((1, 1, 1, 2, 3, 8))):
        _change(dice, data, seeds)
    return bytes(data)


def _change(dice: random.Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    at, to = sorted((dice.randint(0, len(data)), dice.randint(0, len(data))))
    match dice.randrange(8):
        case 0:
            data[at : at + 1] = bytes([dice.randrange(256)])
        case 1 if at < len(data):
            data[at] ^= 1 << dice.randrange(8)
        case 2:
            del data[at : at + dice.choice((1, 1, 4, 64))]
        case 3:
            data[at:at] = dice.choice(_ODD)
        case 4:
            data[at : at + dice.choice((1, 2, 4))] = dice.choice(_ODD)
        case 5:
            data[at:at] = data[at:to]
        case 6:
            other = dice.choice(seeds)
            data[at:to] = other[dice.randint(0, len(other)) :]
        case _:
            del data[to:]
