"""Writes what is heard of boots into Server.status.progress: per server one write for many reports, none lost while
the API server is away, and nobody who reports ever waits."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from provisioner.api import Server
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.machinery.errors import NotFound, ProvisionerError, Retryable
from provisioner.api.machinery.values import MacAddress
from provisioner.api.servers.boot_stage import BootStage
from provisioner.api.servers.server import BootProgress
from provisioner.boot.metrics.progress import ProgressMeter
from provisioner.boot.observe.progress import ProgressReport, record_report
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.own_writes import version_of
from provisioner.cluster.source import Object

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-boot"
MAX_REPORTS_PER_SERVER: Final = 32
SECONDS_BETWEEN_WRITES: Final = 3.0
"""Per server: the first report is written at once, what follows within this time together."""
JOIN_SECONDS: Final = 1.0
"""So long after it said that it is about to join, a machine has mostly joined: the two writes do not meet, and there is
nothing left to write."""
LEFT_SECONDS: Final = 30.0
"""So long after a join the boot host that heard the machine has taken back what it said. If that one was restarted, and
does not know it any more, every other one does."""
LONGEST_PAUSE_SECONDS: Final = 15.0

STAGE_WORDS: Final[dict[BootStage, str]] = {
    "Firmware": "The firmware asked for an address",
    "IPXE": "iPXE asked for an address",
    "Stage1": "Stage-1 runs and has network",
    "Root": "Stage-1 fetches the root image",
}
"""The stages that are told; after these the join tells how it went on. status.progress has all, with their times."""


class ProgressRecorder:
    """`observe` may be called from any thread; `run` does the writing, in as many threads as run it."""

    def __init__(
        self,
        cluster: Cluster,
        index: ServerIndex,
        events: Events,
        *,
        meter: ProgressMeter | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._index = index
        self._events = events
        self._meter = meter or ProgressMeter(CollectorRegistry())
        self._now = now
        self._monotonic = monotonic
        self._written: dict[str, tuple[int, BootProgress | None]] = {}  # our last write
        self._changed = threading.Condition()
        self._pending: OrderedDict[str, list[tuple[ProgressReport, datetime]]] = OrderedDict()
        self._not_before: dict[str, float] = {}
        self._writing: set[str] = set()
        self._left: dict[str, float] = {}  # servers that joined and were not heard here, and when to look at them again

    @property
    def pending(self) -> int:
        """Servers of which reports are not written yet."""
        with self._changed:
            return len(self._pending.keys() | self._writing)

    def observe(self, report: ProgressReport) -> bool:
        """Take a report in. Returns: whether a Server boots from that MAC address; if none does, it is forgotten."""
        server = self._index.booting_from(report.mac)
        if server is None:
            return False
        with self._changed:
            waiting = self._pending.setdefault(server["metadata"]["name"], [])
            if waiting and waiting[-1][0] == report:
                return True
            if len(waiting) >= MAX_REPORTS_PER_SERVER:
                del waiting[MAX_REPORTS_PER_SERVER // 2]  # the first ones tell of stages, the last one is the latest
            waiting.append((report, self._now()))
            if report.stage == "Token" and len(waiting) == 1:  # what waits already is not put off
                name, later = server["metadata"]["name"], self._monotonic() + JOIN_SECONDS
                self._not_before[name] = max(later, self._not_before.get(name, later))
            self._changed.notify_all()
        return True

    def server_changed(self, name: str, old: Object | None, new: Object | None) -> None:
        """Follow the Servers: what a machine said while it waited to join is over once it has joined."""
        joined = _joined(new)
        if joined is None:
            return
        with self._changed:
            if name in self._written:
                self._take_back(name, joined)
                self._changed.notify_all()
            else:  # mostly another boot host has heard the machine, and follows the Servers, too
                self._left.setdefault(name, self._monotonic() + LEFT_SECONDS)

    def _take_back(self, name: str, joined: ProgressReport) -> None:
        waiting = self._pending.setdefault(name, [])
        if not waiting or waiting[-1][0] != joined:
            waiting.append((joined, self._now()))

    def run(self, stop: threading.Event) -> None:
        """Write until `stop`."""
        pause = 0.0
        while not stop.is_set():
            if pause:
                stop.wait(pause)
            taken = self._take(stop)
            if taken is None:
                continue
            name, reports = taken
            try:
                is_news = self._write(name, reports)
                self._meter.wrote("written" if is_news else "unchanged")
                pause = 0.0
            except Retryable as error:
                self._meter.wrote("put_off")
                self._put_back(name, reports)
                pause = min(LONGEST_PAUSE_SECONDS, max(2 * pause, error.after_seconds, 0.2))
                log.warning("progress was not written", server=name, error=str(error), again_in_seconds=pause)
            except ProvisionerError as error:
                self._meter.wrote("dropped")
                log.error("progress was dropped", server=name, error=str(error))
            except Exception:
                self._meter.wrote("dropped")
                log.exception("progress was dropped", server=name)
            finally:
                with self._changed:
                    self._writing.discard(name)
                    self._not_before[name] = self._monotonic() + SECONDS_BETWEEN_WRITES
                    self._changed.notify_all()

    def wake(self) -> None:
        """Let `run` notice that it should stop."""
        with self._changed:
            self._changed.notify_all()

    def _take(self, stop: threading.Event) -> tuple[str, list[tuple[ProgressReport, datetime]]] | None:
        """A server whose reports may be written now, with its reports; None if there was none for a while."""
        with self._changed:
            now = self._monotonic()
            for name in [name for name, moment in self._left.items() if moment <= now]:
                del self._left[name]
                if (joined := _joined(self._index.servers.get(name))) is not None:
                    self._take_back(name, joined)
            shortest = 1.0
            for name in self._pending:
                if name in self._writing:
                    continue
                wait = self._not_before.get(name, now) - now
                if wait <= 0:
                    self._writing.add(name)
                    return name, self._pending.pop(name)
                shortest = min(shortest, wait)
            for name in [name for name, moment in self._not_before.items() if moment <= now]:
                del self._not_before[name]
            if not stop.is_set():
                self._changed.wait(timeout=shortest)
            return None

    def _put_back(self, name: str, reports: list[tuple[ProgressReport, datetime]]) -> None:
        with self._changed:
            self._pending[name] = [*reports, *self._pending.get(name, [])][-MAX_REPORTS_PER_SERVER:]

    def _write(self, name: str, reports: list[tuple[ProgressReport, datetime]]) -> bool:
        """Returns: whether there was anything to write."""
        cached = self._index.servers.get(name)
        if cached is None:
            return False
        server = decode(Server, cached)
        version, written = self._written.pop(name, (0, server.status.progress))
        if version > version_of(cached):  # the cache does not show our last write yet
            server = replace(server, status=replace(server.status, progress=written))
        progress, stages = _fold(server, reports)
        if progress is None:
            return False
        try:
            # Whatever else was written of the Server meanwhile: progress is ours alone, and for display alone.
            answer = self._cluster.apply_status(Server, name, {"progress": to_json(progress)}, manager=MANAGER)
            self._written[name] = version_of(answer), progress
        except NotFound:
            return False  # deleted meanwhile
        for stage in stages:
            self._meter.stage_began(stage)
            if stage in STAGE_WORDS:
                self._events.record(cached, "Normal", f"BootStage{stage}", STAGE_WORDS[stage])
        return True


def _joined(server: Object | None) -> ProgressReport | None:
    """That its machine has joined; of a Server that shows what the machine said before that, in the same boot."""
    status = (server or {}).get("status") or {}
    progress, boot_id = status.get("progress") or {}, (status.get("join") or {}).get("bootID")
    if server is None or not progress.get("message") or boot_id is None or progress.get("bootID") != boot_id:
        return None
    return ProgressReport(mac=MacAddress(server["spec"]["bootMACAddress"]), stage="Token", boot_id=boot_id)


def _fold(
    server: Server, reports: list[tuple[ProgressReport, datetime]]
) -> tuple[BootProgress | None, list[BootStage]]:
    """Progress after all `reports` (None if they change nothing), and the stages that they began."""
    progress, changed, stages = server.status.progress, False, list[BootStage]()
    join = server.status.join
    for report, moment in reports:
        if report.stage == "Token" and join is not None and join.boot_id == report.boot_id and not report.message:
            # It has joined: that is proved, and says more. What it waited for before is over.
            if progress is not None and progress.boot_id == report.boot_id and progress.message is not None:
                progress, changed = replace(progress, message=None), True
            continue
        after = record_report(progress, report, server.status.order, moment)
        if after is None:
            continue
        if progress is None or after.stage_times != progress.stage_times:
            stages.append(report.stage)
        progress, changed = after, True
    return (progress if changed else None), stages
