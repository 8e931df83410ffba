"""Processes that speak IPMI, one for each caller at a time; kept for the next caller, ended when they do not answer.

See `ipmi_child` for why they are processes. What a caller asks goes through a socket: neither arguments nor environment
hold a password.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from provisioner.outbound.deadline import Call, bounded_call

_CHILD: Final = Path(__file__).with_name("ipmi_child.py")
_END_SECONDS: Final = 2.0
IDLE_PROCESSES: Final = 8
"""Kept for the next callers; each has about 25 MiB."""
ANSWER_BYTES: Final = 64 * 1024
"""Of one line. What BMCs answer by IPMI are some bytes each."""


class IpmiNoAnswer(Exception):
    """The process did not answer in time, or ended. It was killed: what it was asked to do may have been done."""


class IpmiProcesses:
    """Usable from several threads. There are as many processes as callers, and some for the next ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Process] = []

    def ask(self, request: dict[str, Any], *, seconds: float) -> dict[str, Any]:
        """Have `request` (see `ipmi_child`) answered within `seconds`, and within the call that this is part of.

        Raises: IpmiNoAnswer.
        """
        process = self._take()
        try:
            with bounded_call("it", seconds=seconds) as call:
                answer = process.ask(request, call)
        except (OSError, ValueError) as error:
            process.end(at_once=True)
            # Without the request's own words: they hold the password.
            raise IpmiNoAnswer(
                "no answer in time" if isinstance(error, TimeoutError) else "the connection broke"
            ) from None
        with self._lock:
            kept = len(self._idle) < IDLE_PROCESSES
            if kept:
                self._idle.append(process)
        if not kept:
            process.end()
        return answer

    def close(self) -> None:
        """End those that nobody uses. Whoever asks later starts a new one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    def _take(self) -> _Process:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.lives:
                    return process
                process.end()
        return _Process()


class _Process:
    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._popen = subprocess.Popen(
                [sys.executable, "-P", str(_CHILD)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    @property
    def lives(self) -> bool:
        return self._popen.poll() is None

    def ask(self, request: dict[str, Any], call: Call) -> dict[str, Any]:
        self._socket.settimeout(call.remaining())
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        said = b""
        while not said.endswith(b"\n"):
            self._socket.settimeout(call.remaining())
            part = self._socket.recv(ANSWER_BYTES)
            said += part
            if not part or len(said) > ANSWER_BYTES:
                raise ConnectionResetError
        answer: dict[str, Any] = json.loads(said)
        return answer

    def end(self, *, at_once: bool = False) -> None:
        self._socket.close()  # by which an idle one ends
        if at_once:
            self._popen.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(_END_SECONDS)
            return
        self._popen.kill()
        self._popen.wait()
