"""Tells what one boot host hears of the machines that are traced."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from provisioner.api.servers.trace import TRACE_ANNOTATION, TRACED_REASON, read_trace
from provisioner.boot.dhcp.responder.respond import FORWARDED
from provisioner.boot.dhcp.workers.protocol import MOST_TRACED, TracedPacket
from provisioner.boot.metrics.log_tail import LogTail
from provisioner.boot.observe.trace.followed import Followed
from provisioner.boot.observe.trace.lines import dhcp_words, http_words, line_at, tftp_words
from provisioner.cluster.events import Events
from provisioner.cluster.source import Source
from provisioner.rules.identity import macs_of

log = structlog.get_logger(__name__)

TURN_SECONDS: Final = 1.0
MOST_TRACES: Final = 8
"""At a time, on one boot host; those that end first."""
TURNS_OF_LOG: Final = 4
"""Megabytes of the access log that are read in a turn; of a longer piece the rest is passed over."""

Key = tuple[str, str]
"""Kind and name."""


class MachineTracer:
    """`heard_dhcp` and `heard_tftp` may be called from any thread; `run` does the rest in one.

    `watch` is told the MAC addresses whose packets the DHCP workers shall hand over. `now` is the wall clock.
    """

    def __init__(
        self,
        servers: Source,
        racks: Source,
        events: Events,
        *,
        host: str,
        access_log: Path,
        watch: Callable[[frozenset[str]], None] = lambda macs: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._servers, self._racks, self._events = servers, racks, events
        self._host, self._access_log, self._watch = host, access_log, watch
        self._now, self._monotonic = now, monotonic
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._asked: dict[Key, Mapping[str, Any]] = {}
        """Objects that carry the annotation, whatever it says: hardly any does."""
        self._followed: dict[Key, Followed] = {}
        self._watched: frozenset[str] = frozenset()
        self._tail: LogTail | None = None
        self._searched: tuple[bytes, ...] = ()

    def attach(self) -> None:
        """Follow the caches."""
        for kind, source in (("Server", self._servers), ("Rack", self._racks)):
            source.subscribe(self._changed(kind))
            for body in source.items():
                self._note(kind, body["metadata"]["name"], body)

    def run(self, stop: threading.Event) -> None:
        """Tell until `stop`. Raises nothing: what fails is logged and tried again."""
        while not stop.is_set():
            try:
                self.turn()
            except Exception:
                log.exception("trace met a fault and goes on")
            if self._followed:
                stop.wait(TURN_SECONDS)
            else:
                self._wake.wait(TURN_SECONDS)
                self._wake.clear()
        self._close_log()

    def wake(self) -> None:
        """Let `run` notice that it should stop, or that somebody asked."""
        self._wake.set()

    def turn(self) -> None:
        """Follow what is asked for, read what was logged, and tell what was heard."""
        self._settle()
        self._read_log()
        with self._lock:
            told = [(each.about, message) for each in self._followed.values() if (message := each.take(self._host))]
        for about, message in told:
            self._events.record(about, "Normal", TRACED_REASON, message)

    def heard_dhcp(self, packet: TracedPacket) -> None:
        """A worker answered, or dropped, a packet of a MAC address that is watched."""
        if packet.verdict == FORWARDED.verdict:
            return  # the worker that it was passed on to tells it
        heard = dhcp_words(packet.data, packet.verdict, packet.reply)
        mac = packet.data[28:34].hex(":")
        with self._lock:
            for each in self._followed.values():
                if mac in each.macs:
                    each.add(line_at(self._now(), heard.line), self._monotonic())
                    each.left_out += packet.left_out
                    if heard.address is not None:
                        each.lend(heard.address)

    def heard_tftp(self, line: str) -> None:
        """dnsmasq said something."""
        if not self._followed:
            return
        heard = tftp_words(line)
        if heard is not None and heard.address is not None:
            self._add(heard.address, "", line_at(self._now(), heard.line))

    def _changed(self, kind: str) -> Callable[[str, dict[str, Any] | None, dict[str, Any] | None], None]:
        return lambda name, old, new: self._note(kind, name, new)

    def _note(self, kind: str, name: str, body: Mapping[str, Any] | None) -> None:
        annotations = ((body or {}).get("metadata") or {}).get("annotations") or {}
        key = (kind, name)
        if body is None or TRACE_ANNOTATION not in annotations:
            if key in self._asked:
                with self._lock:
                    self._asked.pop(key, None)
            return
        with self._lock:
            self._asked[key] = body
        self._wake.set()

    def _settle(self) -> None:
        """Begin and end traces as the annotations, and the clock, say."""
        now, monotonic = self._now(), self._monotonic()
        with self._lock:
            wanted = {key: read for key, body in self._asked.items() if (read := read_trace(body, now)) is not None}
            first = sorted(wanted, key=lambda key: (wanted[key].until, key))[:MOST_TRACES]
            followed: dict[Key, Followed] = {}
            for key in first:
                body, read = self._asked[key], wanted[key]
                macs, addresses = _about(key, body, read.macs)
                before = self._followed.get(key)
                if before is None:
                    begun = Followed.begin(body, read.until, macs, addresses, monotonic)
                    words = f"follows {', '.join(sorted(macs))} until {read.until:%H:%M:%S}"
                    begun.add(line_at(now, words), monotonic)
                    log.info("trace was begun", about="/".join(key))
                    followed[key] = begun
                else:
                    before.about, before.until, before.macs, before.own_addresses = body, read.until, macs, addresses
                    followed[key] = before
            over = self._followed.keys() - followed.keys()
            self._followed = followed
            watched = frozenset(sorted(mac for each in followed.values() for mac in each.macs)[:MOST_TRACED])
        if watched != self._watched:
            self._watched = watched
            self._watch(watched)
        for key in over:
            log.info("trace was ended", about="/".join(key))

    def _read_log(self) -> None:
        if not self._followed:
            self._close_log()
            return
        with self._lock:
            self._searched = tuple(word.encode() for each in self._followed.values() for word in each.searched)
        if self._tail is None:
            self._tail = LogTail(self._access_log, self._take_request)
        with suppress(OSError):
            for _ in range(TURNS_OF_LOG):
                if not self._tail.turn():
                    return
            # A boot storm writes faster than is read for a trace: what is behind is passed over, and said so.
            self._close_log()
            with self._lock:
                for each in self._followed.values():
                    each.left_out += 1

    def _close_log(self) -> None:
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    def _take_request(self, line: bytes) -> bool:
        if not any(word in line for word in self._searched):  # bytes, before anything is read as JSON
            return True
        read = http_words(line)
        if read is None:
            return False
        moment, heard, path = read
        self._add(heard.address or "", path, line_at(moment, heard.line))
        return True

    def _add(self, address: str, path: str, line: str) -> None:
        with self._lock:
            for each in self._followed.values():
                if each.concerns(address, path):
                    each.add(line, self._monotonic())


def _about(key: Key, body: Mapping[str, Any], named: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    """The MAC addresses and the addresses that a trace of this object follows."""
    if key[0] == "Rack":
        return named, frozenset()
    address = (body.get("status") or {}).get("address")
    return frozenset(filter(None, macs_of(dict(body)))), frozenset([address] if address else ())
