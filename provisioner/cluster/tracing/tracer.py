"""Takes each boot that ends to a collector, in a thread of its own: one that hangs, refuses or is away costs traces and
nothing else."""

from __future__ import annotations

import queue
import threading
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry

from provisioner.api import Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.cluster.series import born, new_counter
from provisioner.cluster.source import Json, Source
from provisioner.cluster.tracing.boot_trace import BootTrace, trace_of_change
from provisioner.cluster.tracing.otlp import Send

log = structlog.get_logger(__name__)

MAX_WAITING: Final = 1000
"""A rack of boots many times over. What comes when so many wait is dropped."""
MAX_BATCH: Final = 50
CLOSE_SECONDS: Final = 5.0


class BootTracer:
    """Tells of boots that end while it `follow`s Servers; of each once, as long as one replica follows at a time."""

    def __init__(self, send: Send, registry: CollectorRegistry) -> None:
        self._send = send
        self._waiting: queue.Queue[BootTrace | None] = queue.Queue(MAX_WAITING)
        words = "Traces of boots, by what became of them; Dropped: too many waited."
        self._traces = new_counter(registry, "boot_traces", words, ("result",))
        born(self._traces, ("Exported", "Failed", "Dropped"))
        self._thread = threading.Thread(target=self._work, name="boot-tracer", daemon=True)
        self._thread.start()

    def follow(self, servers: Source) -> None:
        """What is there already is over, or is told when it ends."""
        servers.subscribe(self._server_changed)

    def close(self) -> None:
        """Send what waits, for `CLOSE_SECONDS` at most."""
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSE_SECONDS)

    def _server_changed(self, _key: str, old: Json | None, new: Json | None) -> None:
        if old is None or new is None or _outline(old) == _outline(new):
            return
        try:
            trace = trace_of_change(decode(Server, old), decode(Server, new))
        except (ProvisionerError, ValueError):
            return
        if trace is None:
            return
        try:
            self._waiting.put_nowait(trace)
        except queue.Full:
            self._traces.labels("Dropped").inc()

    def _work(self) -> None:
        while True:
            batch, is_last = self._next()
            if batch:
                self._export(batch)
            if is_last:
                return

    def _next(self) -> tuple[list[BootTrace], bool]:
        """Those that wait, `MAX_BATCH` at most; and whether none comes any more."""
        found, batch = self._waiting.get(), list[BootTrace]()
        while found is not None:
            batch.append(found)
            if len(batch) == MAX_BATCH:
                return batch, False
            try:
                found = self._waiting.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _export(self, batch: list[BootTrace]) -> None:
        words = "the collector did not take them"
        try:
            taken = self._send(batch)
        except Exception as error:
            taken, words = False, f"{type(error).__name__}: {error}"
        if not taken:
            log.warning("traces of boots were not exported", count=len(batch), error=words)
        self._traces.labels("Exported" if taken else "Failed").inc(len(batch))


def _outline(server: Json) -> tuple[Any, Any]:
    """What has to change for a boot to be over."""
    status = server.get("status") or {}
    return (status.get("order") or {}).get("id"), status.get("readyTime")
