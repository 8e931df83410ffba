"""A TPM that answers what a test has written down, in a thread of its own."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from provisioner.node.tpm.device import TpmDevice

Answer = bytes | None | Callable[[bytes], bytes | None]
"""None: it hangs."""


def refused(code: int) -> bytes:
    """The answer with this response code."""
    return struct.pack(">HII", 0x8001, 10, code)


def answered(body: bytes, tag: int = 0x8001) -> bytes:
    """A successful answer."""
    return struct.pack(">HII", tag, 10 + len(body), 0) + body


class FakeTpm:
    """`answers` in order, the last one for ever; `asked` holds the commands. An empty answer hangs up."""

    def __init__(self, answers: Sequence[Answer]) -> None:
        self.asked: list[bytes] = []
        self.opened = 0
        self.left = threading.Event()
        """Nobody has the other end any more."""
        self._answers = answers
        self._ours: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def open(self, clock: Callable[[], float] = time.monotonic) -> TpmDevice:
        ours, theirs = socket.socketpair()
        self.opened += 1
        self.left.clear()
        self._ours.append(ours)
        self._threads.append(threading.Thread(target=self._serve, args=(ours,), daemon=True))
        self._threads[-1].start()
        return TpmDevice(theirs.detach(), "the fake TPM", clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for ours in self._ours:
            ours.close()

    def _serve(self, ours: socket.socket) -> None:
        try:
            while command := ours.recv(8192):
                answer = self._answers[min(len(self.asked), len(self._answers) - 1)]
                self.asked.append(command)
                content = answer(command) if callable(answer) else answer
                if content == b"":
                    ours.shutdown(socket.SHUT_RDWR)
                elif content is not None:
                    ours.sendall(content)
        except OSError:
            pass
        self.left.set()
