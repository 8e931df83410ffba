"""Whether the cache of each Rack is used: the condition CacheAvailable of the Rack.

Each boot host looks for itself and says so in `status.cacheReports`; what servers report of a cache counts for
nothing. A cache that at least one host finds good is good: it is out when all hosts that have looked say that it fails.
Hosts repeat themselves every few minutes; one that no longer does is left out. All hosts write one field set as one
manager, under the version of the Rack that they read, as with the condition Available of an Image (`image_store.py`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog
import urllib3

from provisioner.api import Image, Rack
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.machinery.conditions import condition_of, find_condition, is_true
from provisioner.api.machinery.errors import Conflict, NotFound, ProvisionerError
from provisioner.api.machinery.meta import Condition, rfc3339
from provisioner.api.servers.rack import LEAST_RATE_BYTES_PER_SECOND, CacheReport
from provisioner.boot.host.cache_probe import probe
from provisioner.boot.host.image_store import FORGET_SECONDS, MANAGER, REPEAT_SECONDS, age_of
from provisioner.boot.rack_cache import CACHE_AVAILABLE
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.source import Source, spec_of
from provisioner.outbound.bulkhead import Bulkhead, Lane, LanePolicy, NoRoom
from provisioner.rules.assigned_image import images_of_pool

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 30.0
LANES: Final = LanePolicy(calls=1, failures=3, first_seconds=60.0, cap_seconds=600.0)
"""After three failures in a row a cache is out, and tried again after 1 to 10 minutes; one success brings it back."""
WORKERS: Final = 4
"""Threads that look at caches whose last look was good, and as many for those that fail: these can all hang."""


@dataclass(frozen=True)
class CacheVerdict:
    """The part of a Rack's status that boot hosts write. `news`: worth an Event, not just a repetition."""

    reports: tuple[CacheReport, ...]
    condition: Condition | None
    news: bool

    @property
    def status(self) -> dict[str, Any]:
        """For a server-side apply."""
        conditions = [to_json(self.condition)] if self.condition is not None else []
        return {"conditions": conditions, "cacheReports": [to_json(report) for report in self.reports]}


def judge_cache(rack: Rack, lane: Lane | None, host: str, now: datetime) -> CacheVerdict | None:
    """What the Rack's status shall say after `host` looked, or None if what is written there already stands.

    `lane`: what the host knows of the cache; None if it has not looked.
    """
    before = find_condition(rack.status.conditions, CACHE_AVAILABLE)
    if rack.spec.cache_url is None:
        return CacheVerdict((), None, news=False) if before is not None or rack.status.cache_reports else None
    # What was said of an earlier spec may have been about another cache.
    current = before is None or before.observed_generation == rack.metadata.generation
    former = [report for report in rack.status.cache_reports if current and age_of(report, now) < FORGET_SECONDS]
    reports = [report for report in former if report.host != host]
    own = next((report for report in former if report.host == host), None)
    if (said := _own_report(own, lane, host, now)) is not None:
        reports.append(said)
    reports.sort(key=lambda report: report.host)
    if not reports:
        return None
    condition = _condition(rack, reports, now)
    if current and before == condition and tuple(reports) == rack.status.cache_reports:
        return None
    changed = before is None or before.status != condition.status
    news = changed and (before is not None or condition.status == "False")
    return CacheVerdict(tuple(reports), condition, news)


def _own_report(own: CacheReport | None, lane: Lane | None, host: str, now: datetime) -> CacheReport | None:
    if lane is None or (lane.failures and lane.breaker == "Closed"):
        return own  # not decided
    problem = lane.words if lane.failures else None
    if own is not None and (own.problem is None) == (problem is None) and age_of(own, now) < REPEAT_SECONDS:
        return own
    return CacheReport(host=host, time=rfc3339(now), problem=problem)


def _condition(rack: Rack, reports: list[CacheReport], now: datetime) -> Condition:
    good = [report for report in reports if report.problem is None]
    names = ", ".join(f"'{report.host}'" for report in good)
    hosts = f"boot host{'s' * (len(good) > 1)} {names}"
    rate = f"{least_rate_of(rack) // 1024} KiB/s"
    if good:
        reason, message = "Measured", f"{rack.spec.cache_url} gives images at {rate} and more to {hosts}"
    else:
        reason = "CacheFails"
        message = (
            f"{rack.spec.cache_url}: observed by boot host '{reports[0].host}': {reports[0].problem}; expected the "
            f"files of an Image at {rate} and more; look at the cache, its disk and network. Servers fetch from the "
            "boot host meanwhile, and the cache is tried again every few minutes"
        )
    return condition_of(rack, CACHE_AVAILABLE, bool(good), reason, message, now)


def least_rate_of(rack: Rack) -> int:
    """What a source must give the rack's servers, in bytes/s."""
    return rack.spec.least_rate_bytes_per_second or LEAST_RATE_BYTES_PER_SECOND


@dataclass(frozen=True)
class RackCache:
    """Racks that share a cache and a rate share the looks at it."""

    url: str
    least_rate: int

    @property
    def key(self) -> str:
        return f"{self.url} ({self.least_rate // 1024} KiB/s)"


class CacheWatch:
    """Looks at the cache of every Rack, now and then."""

    def __init__(
        self,
        cluster: Cluster,
        events: Events,
        *,
        racks: Source,
        pools: Source,
        images: Source,
        store: Path,
        host: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster, self._events = cluster, events
        self._racks, self._pools, self._images = racks, pools, images
        self._store, self._host, self._now = store, host, now
        self._wake = threading.Event()
        self._looks = 0
        self._racks_of: dict[RackCache | None, list[str]] = {}
        self._waiting: set[RackCache] = set()
        self._queues: tuple[queue.SimpleQueue[RackCache], ...] = (queue.SimpleQueue(), queue.SimpleQueue())
        self.bulkhead = Bulkhead("cache", LANES)

    def run(self, stop: threading.Event) -> None:
        """Look until `stop`."""
        for caches in self._queues:
            for number in range(WORKERS):
                # They may hang in a look for as long as that is bounded; nobody waits for them.
                threading.Thread(target=self._work, args=(caches, stop), name=f"cache-{number}", daemon=True).start()
        while not stop.is_set():
            self._wake.clear()
            self.enqueue()
            self._wake.wait(LOOK_SECONDS)

    def wake(self) -> None:
        """Look now; lets `run` notice that it should stop, too."""
        self._wake.set()

    def enqueue(self) -> None:
        """Have each cache looked at that is not waiting for a look."""
        self._looks += 1
        racks: dict[RackCache | None, list[str]] = {}
        for rack in self._racks.items():
            racks.setdefault(_cache_of(rack), []).append(_name(rack))
        self._racks_of = racks
        self._tell_all(None)
        caches = [cache for cache in racks if cache is not None]
        lanes = self.bulkhead.lanes()
        for key in lanes.keys() - {cache.key for cache in caches}:
            self.bulkhead.forget(key)
        for cache in caches:
            if cache not in self._waiting:
                self._waiting.add(cache)
                lane = lanes.get(cache.key)
                self._queues[lane is not None and lane.failures > 0].put(cache)

    def _work(self, caches: queue.SimpleQueue[RackCache], stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                cache = caches.get(timeout=1.0)
            except queue.Empty:
                continue
            try:
                self.look(cache)
            except Exception:
                log.exception("cache was not looked at", cache=cache.url)
            finally:
                self._waiting.discard(cache)

    def look(self, cache: RackCache) -> None:
        """Probe one cache, unless it is out and its time has not come, and bring its Racks' conditions up to date."""
        image = self._image()
        if image is not None:
            try:
                with self.bulkhead.call(cache.key, counts=(OSError, urllib3.exceptions.HTTPError)):
                    probe(cache.url, image, cache.least_rate, self._store)
            except NoRoom:
                pass
            except (OSError, urllib3.exceptions.HTTPError) as error:
                log.warning("cache failed", cache=cache.url, error=str(error))
        self._tell_all(cache)

    def _image(self) -> Image | None:
        """One that servers boot, another one at each look."""
        wanted = {name for pool in self._pools.items() for name in images_of_pool(pool)}
        bodies = sorted((body for body in self._images.items() if body["metadata"]["name"] in wanted), key=_name)
        images = [image for image in _readable(bodies) if is_true(image.status.conditions, "Available")]
        return images[self._looks % len(images)] if images else None

    def _tell_all(self, cache: RackCache | None) -> None:
        lane = self.bulkhead.lanes().get(cache.key) if cache is not None else None
        for name in self._racks_of.get(cache, ()):
            body = self._racks.get(name)
            if body is None or _cache_of(body) != cache:
                continue
            try:
                self._tell(body, lane)
            except Conflict:
                continue  # somebody else wrote: at the next look
            except ProvisionerError as error:
                log.warning("condition of a cache was not written", rack=name, error=str(error))

    def _tell(self, body: Mapping[str, Any], lane: Lane | None) -> None:
        rack = decode(Rack, body)
        verdict = judge_cache(rack, lane, self._host, self._now())
        if verdict is None:
            return
        version = rack.metadata.resource_version
        try:
            self._cluster.apply_status(Rack, rack.name, verdict.status, manager=MANAGER, resource_version=version)
        except NotFound:
            return
        if not verdict.news or verdict.condition is None:
            return
        good = verdict.condition.status == "True"
        self._events.record(
            body, "Normal" if good else "Warning", "CacheBack" if good else "CacheOut", verdict.condition.message
        )


def _cache_of(rack: Mapping[str, Any]) -> RackCache | None:
    spec = spec_of(rack)
    if not spec.get("cacheURL"):
        return None
    rate = spec.get("leastRateBytesPerSecond") or LEAST_RATE_BYTES_PER_SECOND
    return RackCache(str(spec["cacheURL"]).rstrip("/"), int(rate))


def _readable(bodies: list[dict[str, Any]]) -> Iterator[Image]:
    for body in bodies:
        try:
            yield decode(Image, body)
        except ProvisionerError:
            continue  # of a newer version


def _name(body: Mapping[str, Any]) -> str:
    return str(body["metadata"]["name"])
