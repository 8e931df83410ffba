"""Unknown machines become Server objects that wait for a person: bounded, slowly, and nobody who asks ever waits."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import structlog

from provisioner.api import Rack, Server
from provisioner.api.codec import decode, encode, to_json
from provisioner.api.discovery import (
    MAX_UNKNOWN_SERVERS,
    Claims,
    TokenBucket,
    discovered_name,
    discovered_server,
    place_of,
    refuse_flood,
)
from provisioner.api.errors import Conflict, ProvisionerError, Refused, Retryable
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.resources import of
from provisioner.cluster.source import Source

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-boot-discovery"
"""A manager of its own: a server-side apply of the progress would give up the discovery otherwise."""

CREATED_PER_SECOND: Final = 5.0
CREATED_AT_ONCE: Final = 50.0
LONGEST_PAUSE_SECONDS: Final = 15.0


class Discoverer:
    """`offer` may be called from any thread; `run` creates the objects in one."""

    def __init__(
        self,
        cluster: Cluster,
        index: ServerIndex,
        racks: Source,
        events: Events,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._index = index
        self._racks = racks
        self._events = events
        self._now = now
        self._monotonic = monotonic
        self._changed = threading.Condition()
        self._offered: OrderedDict[str, Claims] = OrderedDict()
        self._trouble: str | None = None

    def offer(self, claims: Claims) -> str:
        """Take note of an unknown machine and return the name of its (future) Server.

        Raises: Refused if too many unknown machines wait already.
        """
        name = discovered_name(claims.mac)
        with self._changed:
            if name in self._offered:
                return name
            refuse_flood(self._index.count_waiting())
            if len(self._offered) >= MAX_UNKNOWN_SERVERS:
                raise Refused(
                    f"unknown machine not recorded: {MAX_UNKNOWN_SERVERS} others are about to be", hint="wait a moment"
                )
            self._offered[name] = claims
            self._changed.notify_all()
        return name

    @property
    def trouble(self) -> str | None:
        """Why the last attempt to record a machine failed; None if it did not."""
        return self._trouble

    def run(self, stop: threading.Event) -> None:
        """Create objects until `stop`."""
        bucket = TokenBucket.full(
            rate_per_second=CREATED_PER_SECOND, burst=CREATED_AT_ONCE, now_seconds=self._monotonic()
        )
        pause = 0.0
        while not stop.is_set():
            with self._changed:
                if not self._offered:
                    self._changed.wait(timeout=1.0)
                    continue
                name, claims = next(iter(self._offered.items()))
            bucket, taken = bucket.take(self._monotonic())
            if not taken:
                stop.wait(1 / CREATED_PER_SECOND)
                continue
            try:
                self._record(name, claims)
                self._trouble, pause = None, 0.0
            except Retryable as error:
                self._trouble = str(error)
                pause = min(LONGEST_PAUSE_SECONDS, max(2 * pause, error.after_seconds, 0.2))
                log.warning("unknown machine was not recorded", mac=claims.mac, error=str(error))
                stop.wait(pause)
                continue
            except ProvisionerError as error:
                self._trouble = str(error)
                log.error("unknown machine was not recorded", mac=claims.mac, error=str(error))
            except Exception:
                self._trouble = "the boot service has a fault; see its log"
                log.exception("unknown machine was not recorded", mac=claims.mac)
            with self._changed:
                self._offered.pop(name, None)

    def wake(self) -> None:
        """Let `run` notice that it should stop."""
        with self._changed:
            self._changed.notify_all()

    def _record(self, name: str, claims: Claims) -> None:
        if self._index.booting_from(claims.mac) is not None:
            return  # registered, or recorded by another boot host, meanwhile
        racks = [decode(Rack, rack) for rack in self._racks.items()]
        place = place_of(claims.source_address, racks) if claims.source_address else None
        server = discovered_server(claims, place=place, now=self._now())
        try:
            body = encode(server)
            body.pop("status", None)
            created = self._cluster.create(of(Server), body)
        except Conflict:
            return  # another boot host was faster
        log.info("unknown machine was recorded", server=name, mac=claims.mac)
        discovery = to_json(server.status.discovery)
        self._cluster.apply_status(Server, name, {"discovery": discovery}, manager=MANAGER)
        self._events.record(
            created, "Normal", "Discovered", f"An unknown machine asked to boot; kubectl provision accept {name}"
        )
