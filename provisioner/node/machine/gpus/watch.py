"""Surveys the GPUs again and again, each time in a process with a deadline, and never waits for one.

A survey that hangs is a fact of its own. Its process is killed, and where the kernel holds it in a call that does not
come back, no other one is started beside it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from provisioner.node.machine.gpus.kernel import has_gpus
from provisioner.node.machine.gpus.kernel_log import KernelLog
from provisioner.node.machine.gpus.survey import FAILED, READY
from provisioner.node.machine.kernel_log.records import KernelRecords

# Which slowdowns of a GPU's clocks are worth telling: they come and go within seconds, and facts may not flap.

FORGOTTEN_SECONDS = 600.0


class SteadySlowdowns:
    """A slowdown counts once two readings in a row saw it, and until it was not seen for 10 minutes."""

    def __init__(self) -> None:
        self._before: set[tuple[str, str]] = set()
        self._told: dict[tuple[str, str], float] = {}

    def steady(self, reading: Mapping[str, Any], now: float) -> dict[str, Any]:
        """`reading`, where each GPU's `slowdowns` are those that count; those of this moment are `slowdownsNow`."""
        gpus = reading.get("gpus", ())
        seen = {(_name(gpu), reason) for gpu in gpus for reason in gpu.get("slowdowns", ())}
        for each in seen:
            if each in self._before or each in self._told:
                self._told[each] = now
        self._before = seen
        self._told = {each: last for each, last in self._told.items() if now - last < FORGOTTEN_SECONDS}
        steady = []
        for gpu in gpus:
            counting = [reason for name, reason in sorted(self._told) if name == _name(gpu)]
            steady.append({**gpu, "slowdowns": counting, "slowdownsNow": gpu.get("slowdowns", [])})
        return {**reading, "gpus": steady}


def _name(gpu: Mapping[str, Any]) -> str:
    return str(gpu.get("uuid", gpu.get("index")))


LOOKING, HUNG, CRASHED = "Looking", "Hung", "Crashed"

DEADLINE_SECONDS = 60.0
"""Without nvidia-persistenced NVML initializes each GPU anew, which took some 2 s for each on servers with 8."""
PAUSE_SECONDS = 30.0
TROUBLED_PAUSE_SECONDS = 10.0
HUNG_PAUSE_SECONDS = 300.0
MOST_BYTES = 1 << 20


class GpuWatch:
    """`reading`: the last survey's answer with its state; None on a machine without NVIDIA's GPUs."""

    def __init__(
        self,
        root: str,
        clock: Callable[[], float],
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        python: str = sys.executable,
        records: KernelRecords | None = None,
    ) -> None:
        """python: the interpreter that has the agent. clock: seconds that nobody sets, such as time.monotonic.
        records: the reader of the kernel log that others share."""
        self._root = root
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._python = python
        self._process: subprocess.Popen[bytes] | None = None
        self._answer = -1
        self._started = 0.0
        self._due = 0.0
        self._killed = False
        self._slowdowns = SteadySlowdowns()
        self.log = KernelLog(f"{root}/dev/kmsg", records)
        self.reading: Mapping[str, Any] | None = None

    @property
    def is_looking(self) -> bool:
        """Whether the first survey of this run is under way."""
        return self.reading is not None and self.reading["state"] == LOOKING

    def look(self) -> bool:
        """Start a survey that is due, take one that is done, end one that hangs. Whether there is a new reading."""
        now = self._clock()
        if self._process is not None:
            return self._follow(self._process, now)
        if now < self._due:
            return False
        if self.reading is None and not has_gpus(self._root):
            self._due = now + PAUSE_SECONDS  # a driver that is loaded later, by hand
            return False
        self.log.look()
        self._start(now)
        if self.reading is None:
            self.reading = {"state": LOOKING}
        return False

    def close(self) -> None:
        """End what is under way."""
        if self._process is not None:
            self._process.kill()
            self._forget()

    def _start(self, now: float) -> None:
        root = ["--root", self._root] if self._root else []
        self._answer = os.memfd_create("gpus", os.MFD_CLOEXEC)
        self._started, self._killed = now, False
        try:
            self._process = subprocess.Popen(
                [self._python, "-I", "-m", "provisioner.node", "gpus", *root],
                stdin=subprocess.DEVNULL,
                stdout=self._answer,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            self._forget()
            self._take({"state": FAILED, "message": f"the survey was not started: {error}"}, now)

    def _follow(self, process: subprocess.Popen[bytes], now: float) -> bool:
        status = process.poll()
        if status is None:
            if self._killed or now - self._started < self._deadline_seconds:
                return False
            process.kill()
            self._killed = True
            words = f"NVML did not answer within {self._deadline_seconds:.0f} s"
            return self._take({**_read(self._answer)[0], "state": HUNG, "message": words}, now)
        driver, answer = _read(self._answer)
        self._forget()
        if self._killed:
            return False  # told of already
        if status < 0:
            words = f"the survey was ended by {_SIGNALS.get(-status, f'signal {-status}')}"
            return self._take({**driver, "state": CRASHED, "message": words}, now)
        if not isinstance(answer.get("state"), str):
            words = f"the survey ended with status {status} and no answer"
            return self._take({**driver, "state": FAILED, "message": words}, now)
        return self._take({**driver, **answer}, now)

    def _take(self, reading: Mapping[str, Any], now: float) -> bool:
        self.log.look()
        self.reading = self._slowdowns.steady(reading, now)
        pauses = {READY: PAUSE_SECONDS, HUNG: HUNG_PAUSE_SECONDS}
        self._due = now + pauses.get(reading["state"], TROUBLED_PAUSE_SECONDS)
        return True

    def _forget(self) -> None:
        if self._answer >= 0:
            os.close(self._answer)
        self._process, self._answer = None, -1


_SIGNALS = {int(each): each.name for each in signal.Signals}


def _read(descriptor: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the process has written: of the driver, then of the GPUs; empty where it has not come so far."""
    text = os.pread(descriptor, MOST_BYTES, 0)
    found: list[Any] = []
    for line in text.splitlines()[:2]:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    whole = [each for each in found if isinstance(each, dict)]
    return (whole[0] if whole else {}), (whole[1] if len(whole) > 1 else {})
