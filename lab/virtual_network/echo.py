"""Echo requests from inside a namespace, of either family, and what comes back: answers, or a gateway's refusal."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

_IP_MTU_DISCOVER, _PROBE = 10, 3
_IPV6_MTU_DISCOVER = 23
_REQUEST: Final = {4: 8, 6: 128}
_REPLY: Final = {4: 0, 6: 129}
_TOO_LARGE: Final = {4: (3, 4), 6: (2, 0)}
_MOST_LATE: Final = 64
"""Packets that are still looked at when the time is over."""


@dataclass
class Echoes:
    """`sent` and `answered`: sequence numbers. `largest`: gateways that refused, and the MTUs that they named."""

    sent: list[int] = field(default_factory=list)
    answered: set[int] = field(default_factory=set)
    largest: list[tuple[str, int]] = field(default_factory=list)

    @property
    def lost(self) -> list[int]:
        return [each for each in self.sent if each not in self.answered]


def echo(
    address: str,
    *,
    count: int = 3,
    interval_seconds: float = 0.1,
    patience_seconds: float = 0.7,
    size_bytes: int = 84,
    source: str | None = None,
    until: Callable[[], bool] | None = None,
    enough: int = 1,
) -> Echoes:
    """Requests of `size_bytes` as IP counts them, never fragmented, in the namespace in which the thread is.

    Ends when `enough` are answered, or `patience_seconds` after the last of `count`; with `until`, sends until that is
    true, and waits for all.
    """
    version = 6 if ":" in address else 4
    family = socket.AF_INET6 if version == 6 else socket.AF_INET
    protocol = socket.IPPROTO_ICMPV6 if version == 6 else socket.IPPROTO_ICMP
    identifier = (os.getpid() ^ time.monotonic_ns()) & 0xFFFF
    found = Echoes()
    with socket.socket(family, socket.SOCK_RAW, protocol) as sock:
        level, option = (
            (socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER) if version == 6 else (socket.IPPROTO_IP, _IP_MTU_DISCOVER)
        )
        sock.setsockopt(level, option, _PROBE)
        if source is not None:
            sock.bind((source, 0))
        payload = bytes(size_bytes - (48 if version == 6 else 28))
        sequence = 0
        next_time = time.monotonic()
        while (until is None and sequence < count) or (until is not None and not until()):
            with contextlib.suppress(OSError):
                sock.sendto(_request(version, identifier, sequence, payload), (address, 0))
            found.sent.append(sequence)
            sequence += 1
            next_time += interval_seconds
            _receive(sock, version, identifier, found, next_time, sequence if until else enough)
            if until is not None:
                time.sleep(max(0.0, next_time - time.monotonic()))
            elif len(found.answered) >= enough or found.largest:
                return found
        _receive(
            sock, version, identifier, found, time.monotonic() + patience_seconds, len(found.sent) if until else enough
        )
    return found


def _receive(sock: socket.socket, version: int, identifier: int, found: Echoes, end: float, enough: int) -> None:
    """Until `end`, or until `enough` are answered or one is refused.

    What came before `end` counts where a busy machine looks for it after that.
    """
    late = 0
    while len(found.answered) < enough and late < _MOST_LATE:
        left = end - time.monotonic()
        late += left <= 0
        if not select.select([sock], [], [], max(0.0, left))[0]:
            return
        data, sender = sock.recvfrom(65535)
        if version == 4:
            data = data[(data[0] & 15) * 4 :]
        if len(data) < 8:
            continue
        kind, code, _, its, sequence = struct.unpack_from("!BBHHH", data)
        if kind == _REPLY[version] and its == identifier:
            found.answered.add(sequence)
        elif (kind, code) == _TOO_LARGE[version]:
            mtu = sequence if version == 4 else struct.unpack_from("!I", data, 4)[0]
            found.largest.append((sender[0], mtu))
            return


def _request(version: int, identifier: int, sequence: int, payload: bytes) -> bytes:
    head = struct.pack("!BBHHH", _REQUEST[version], 0, 0, identifier, sequence)
    if version == 6:
        return head + payload  # the kernel fills in the checksum
    checksum = internet_checksum(head + payload)
    return struct.pack("!BBHHH", _REQUEST[version], 0, checksum, identifier, sequence) + payload


def internet_checksum(data: bytes) -> int:
    """Source: RFC 1071."""
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total
