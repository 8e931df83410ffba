"""A netlink socket: batches go out as one write, dumps come back whole."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple, Self

from pyroute2 import IPBatch

from provisioner.network.agent.netlink.wire import (
    ACK,
    DUMP,
    DUMP_INTERRUPTED,
    REQUEST,
    attributes,
    message,
    messages,
)

_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_ERROR, _DONE = 2, 3
_RECEIVE_BUFFER_FORCE: Final = 33
_BATCH_BYTES: Final = 1 << 16
_RECEIVE_BYTES: Final = 1 << 20
_PATIENCE_SECONDS: Final = 10
_ATTEMPTS: Final = 5
_MESSAGE_OF_ERROR: Final = 1


class NetlinkRequest(NamedTuple):
    """A message to be: its kind, flags and body."""

    kind: int
    flags: int
    body: bytes


def requests_by(build: Callable[[IPBatch], object]) -> list[NetlinkRequest]:
    """What pyroute2 makes of calls such as `batch.link("add", …)`; a NetlinkSocket sends it.

    Its own sockets do not: of 0.7 they send what is refused as busy thirty times, of 0.9 they wait for ever.
    """
    with own_event_loop(), IPBatch() as batch:
        build(batch)
        return [NetlinkRequest(kind, flags, body) for kind, flags, _, body in messages(bytes(batch.batch))]


@contextmanager
def own_event_loop() -> Iterator[None]:
    """For pyroute2, which since 0.9 runs asyncio's event loop of this thread: one that runs already is put aside."""
    running = asyncio._get_running_loop()  # noqa: SLF001 (asyncio has no other way to put one aside)
    if running is None:
        yield
        return
    own = asyncio.new_event_loop()
    asyncio._set_running_loop(None)  # noqa: SLF001
    asyncio.set_event_loop(own)
    try:
        yield
    finally:
        asyncio.set_event_loop(running)
        asyncio._set_running_loop(running)  # noqa: SLF001
        own.close()


class NetlinkError(NamedTuple):
    """What the kernel said to one request of a batch."""

    errno: int
    words: str


class NetlinkSocket:
    """A socket of the network namespace in which the thread is when it is made; it stays there."""

    def __init__(self, protocol: int = socket.NETLINK_ROUTE) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        self._socket.bind((0, 0))
        self._socket.settimeout(_PATIENCE_SECONDS)
        self._socket.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER_FORCE, 4 * _RECEIVE_BYTES)
        for option in (_CAP_ACK, _EXT_ACK):
            self._socket.setsockopt(_SOL_NETLINK, option, 1)
        self._sequence = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, requests: Sequence[NetlinkRequest]) -> dict[int, NetlinkError]:
        """Carry out all of them, in order; one that is refused stops none.

        Returns: what was refused, by place. The kernel answers what failed, and, asked to, the last one of a write: the
        answer to that one ends the wait. Raises: OSError if it answers nothing in ten seconds.
        """
        refused: dict[int, NetlinkError] = {}
        at = 0
        while at < len(requests):
            first, data, at = at, bytearray(), at
            start = self._sequence + 1
            while at < len(requests) and (not data or len(data) < _BATCH_BYTES):
                kind, flags, body = requests[at]
                self._sequence += 1
                at += 1
                last = at == len(requests) or len(data) + 16 + len(body) >= _BATCH_BYTES
                data += message(kind, flags | REQUEST | (ACK if last else 0), self._sequence, body)
            self._socket.send(data)
            for sequence, refusal in self._answers(self._sequence):
                if refusal is not None:
                    refused[first + sequence - start] = refusal
        return refused

    def dump(self, kind: int, header: bytes) -> list[bytes]:
        """The bodies of all that the kernel has of a kind. A dump that a change interrupted is made anew.

        Raises: OSError, if the kernel refuses or changes come faster than it can be read.
        """
        for _ in range(_ATTEMPTS):
            found, whole = self._dump_once(kind, header)
            if whole:
                return found
        raise OSError(errno.EINTR, "the kernel's tables change faster than they can be read")

    def _dump_once(self, kind: int, header: bytes) -> tuple[list[bytes], bool]:
        self._sequence += 1
        self._socket.send(message(kind, REQUEST | DUMP, self._sequence, header))
        found: list[bytes] = []
        whole = True
        while True:
            for answer, flags, sequence, body in messages(self._socket.recv(_RECEIVE_BYTES)):
                if sequence != self._sequence:
                    continue
                whole = whole and not flags & DUMP_INTERRUPTED
                if answer == _DONE:
                    return found, whole
                if answer == _ERROR:
                    refusal = _refusal(flags, body)
                    code = refusal.errno if refusal else errno.EPROTO
                    raise OSError(code, refusal.words if refusal else "no dump")
                found.append(body)

    def _answers(self, last: int) -> Iterator[tuple[int, NetlinkError | None]]:
        while True:
            for kind, flags, sequence, body in messages(self._socket.recv(_RECEIVE_BYTES)):
                if kind == _ERROR and sequence <= last:
                    yield sequence, _refusal(flags, body)
                    if sequence == last:
                        return


def _refusal(flags: int, body: bytes) -> NetlinkError | None:
    """None for an acknowledgement. After the number comes the request's header, then what the kernel has to add."""
    (code,) = struct.unpack_from("=i", body)
    if code == 0:
        return None
    said = attributes(body, 20).get(_MESSAGE_OF_ERROR, b"").rstrip(b"\0").decode(errors="replace")
    return NetlinkError(-code, said or os.strerror(-code))
