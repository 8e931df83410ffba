"""Load from perfdhcp (of ISC Kea) and what came of it."""

from __future__ import annotations

import math
import re
import subprocess
from dataclasses import dataclass

from tests.benchmarks.dhcp.wire import CLIENT_ADDRESS, SERVER_ADDRESS, Course, processor_seconds

DROP_SECONDS = 1.0
"""An answer that takes longer counts as lost: firmware would have asked again."""

_SENT = re.compile(r"^sent packets: (\d+)", re.MULTILINE)
_DELAY = re.compile(r"^avg delay: ([\d.]+) ms", re.MULTILINE)
_RECEIVED = re.compile(r"^received packets: (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Load:
    """One run. `offered` is what perfdhcp managed to send, which under load is less than it was told."""

    wanted_per_second: float
    seconds: float
    discovers: int
    exchanges: int
    server_processor_seconds: float
    delay_milliseconds: float
    """From a question to its answer, on average."""

    @property
    def offered_per_second(self) -> float:
        return self.discovers / self.seconds

    @property
    def completed_per_second(self) -> float:
        return self.exchanges / self.seconds

    @property
    def completed_share(self) -> float:
        return self.exchanges / self.discovers if self.discovers else 0.0

    @property
    def microseconds_each(self) -> float:
        """The server's processor time for one exchange: what a busy machine distorts least."""
        return 1e6 * self.server_processor_seconds / self.exchanges if self.exchanges else math.inf


def run_perfdhcp(course: Course, program: str, rate: int, seconds: int, clients: int) -> Load:
    """Offer `rate` DISCOVER-OFFER-REQUEST-ACK exchanges a second."""
    command = course.at_clients(
        program, "-4", "-r", str(rate), "-R", str(clients), "-p", str(seconds), "-W", "500000",
        "-d", str(DROP_SECONDS), "-d", str(DROP_SECONDS), "-l", CLIENT_ADDRESS, SERVER_ADDRESS,
    )  # fmt: skip
    before = processor_seconds(course)
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60, check=False)
    used = processor_seconds(course) - before
    sent, received = _SENT.findall(done.stdout), _RECEIVED.findall(done.stdout)
    if len(sent) < 2 or len(received) < 2:
        raise RuntimeError(f"perfdhcp failed: {done.stdout[-500:]}{done.stderr[-500:]}")
    delays = [float(delay) for delay in _DELAY.findall(done.stdout)]
    return Load(
        rate,
        seconds,
        discovers=int(sent[0]),
        exchanges=int(received[1]),
        server_processor_seconds=used,
        delay_milliseconds=sum(delays) / len(delays) if delays else 0.0,
    )


def wait_for_answer(course: Course, program: str, attempts: int = 40) -> None:
    """Until the server answers; raises RuntimeError if it never does."""
    for _ in range(attempts):
        command = course.at_clients(program, "-4", "-R", "1", "-r", "10", "-p", "1", "-W", "200000",
                                    "-l", CLIENT_ADDRESS, SERVER_ADDRESS)  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if any(int(count) for count in _RECEIVED.findall(done.stdout)[1:2]):
            return
    raise RuntimeError("the server never answered")
