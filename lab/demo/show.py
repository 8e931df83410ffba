"""What a demo shows while its servers boot: a line for each, rewritten on a terminal, appended elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, TextIO

from provisioner.api.machinery.conditions import find_condition, is_true
from provisioner.api.machinery.errors import Retryable
from provisioner.api.servers.boot_timeline import boot_timeline, format_timeline
from provisioner.api.servers.server import Server
from provisioner.rules.cause import find_cause

INTERVAL_SECONDS: Final = 0.5


def server_line(server: Server, firmware: str, now: datetime) -> str:
    """One server on one line: the phases of its boot, or why it does not boot."""
    timeline = boot_timeline(server.status)
    words = format_timeline(timeline, now) if timeline.phases else what_is_missing(server)
    return f"{server.name:<8} {firmware:<5} {words}"


def is_ready(server: Server) -> bool:
    """Whether its Node may be used: conditions Ready and Verified are True, and the verification's taint is off."""
    conditions = server.status.conditions
    verified = is_true(conditions, "Ready") and is_true(conditions, "Verified")
    return verified and server.status.lifecycle == "InProduction"


def what_is_missing(server: Server) -> str:
    """Why a server may not be used yet, in the words of the condition that names the cause."""
    cause = find_cause(server)
    if cause is not None:
        return cause.words
    if find_condition(server.status.conditions, "Ready") is None:
        return "nothing is known of it yet"
    if find_condition(server.status.conditions, "Verified") is None:
        return "nobody has looked at its machine yet"
    return f"its lifecycle is {server.status.lifecycle or 'not known'}"


class BootDisplay:
    """Shows servers as they boot."""

    def __init__(self, out: TextIO, firmware: Mapping[str, str]) -> None:
        self._out = out
        self._firmware = firmware
        self._lines_on_screen = 0
        self._last_stage: dict[str, str | None] = {}

    def say(self, line: str) -> None:
        """Print a line that stays, above the servers'."""
        self._out.write(line + "\n")
        self._lines_on_screen = 0
        self._out.flush()

    def show(self, servers: Sequence[Server], now: datetime) -> None:
        """Rewrite the lines on a terminal; elsewhere print the line of a server whose stage changed."""
        if self._out.isatty():
            width = shutil.get_terminal_size().columns - 1
            if self._lines_on_screen:
                self._out.write(f"\x1b[{self._lines_on_screen}A")
            for server in servers:
                self._out.write(f"\x1b[2K{self._line(server, now)[:width]}\n")
            self._lines_on_screen = len(servers)
        else:
            for server in servers:
                if self._last_stage.get(server.name, "") != server.status.boot_stage:
                    self._last_stage[server.name] = server.status.boot_stage
                    self._out.write(self._line(server, now) + "\n")
        self._out.flush()

    def _line(self, server: Server, now: datetime) -> str:
        return server_line(server, self._firmware.get(server.name, ""), now)


def follow_until(
    done: Callable[[Server], bool],
    read: Callable[[], Sequence[Server]],
    display: BootDisplay,
    *,
    timeout_seconds: float,
) -> Sequence[Server]:
    """Show the servers until `done` holds for all or the time is over; returns those for which it does not hold.

    An API server that is away is waited for.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            servers: Sequence[Server] = sorted(read(), key=lambda server: server.name)
        except Retryable:
            servers = ()
        display.show(servers, datetime.now(UTC))
        waiting = [server for server in servers if not done(server)]
        if (servers and not waiting) or time.monotonic() > deadline:
            return waiting
        time.sleep(INTERVAL_SECONDS)
