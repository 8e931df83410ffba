"""What a rack's cache measures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import Metric

from provisioner.boot.cache.fetcher import Fetcher
from provisioner.boot.cache.kept import KeptFiles
from provisioner.boot.metrics.requests import CODES, read_line
from provisioner.boot.metrics.store import space_of
from provisioner.cluster.series import PREFIX, Families, FamiliesCollector, born, by_label, counter, gauge, tell_process

SOURCES: Final = ("disk", "fetcher", "none")
"""none: refused before either was asked, such as where all slots are taken."""
_GIVEN: Final = ("2xx", "3xx")


class CacheMeters:
    """The registry of a cache, and what counts its requests."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        tell_process(self.registry, "cache")
        self._requests = Counter(
            f"{PREFIX}_cache_requests", "Files that were asked for, by who gave them.", ("source", "code"),
            registry=self.registry,
        )  # fmt: skip
        self._bytes = Counter(
            f"{PREFIX}_cache_sent_bytes", "Bytes of answers, by who gave them.", ("source",), registry=self.registry
        )
        born(self._requests, SOURCES, CODES)
        born(self._bytes, SOURCES)

    def count(self, line: bytes) -> bool:
        """Take a line of nginx's log. Returns: whether it could be read."""
        request = read_line(line)
        if request is None or request.word not in SOURCES:
            return False
        # What the disk has is whole: anything but an answer that gives it was none of the disk's.
        source = "none" if request.word == "disk" and request.code not in _GIVEN else request.word
        self._requests.labels(source, request.code).inc()
        self._bytes.labels(source).inc(request.sent_bytes)
        return True

    def tell(self, families: Sequence[Families]) -> None:
        """From now on, these too. Once."""
        for each in families:
            self.registry.register(FamiliesCollector(each))


def cache_families(kept: KeptFiles, fetcher: Fetcher, thrown_away: int, folder: Path) -> Iterable[Metric]:
    """What stands. folder: where the files lie."""
    results = by_label(fetcher.counts())
    yield counter("cache_fetches", "Files that were fetched from boot hosts, by how it ended.", ("result",), results)
    yield counter("cache_fetched_bytes", "Bytes that came from boot hosts.", (), {(): fetcher.fetched_bytes})
    yield gauge("cache_fetches_under_way", "Files that are fetched now.", (), {(): len(fetcher.under_way)})
    files = kept.all()
    yield gauge("cache_kept_files", "Files that are kept.", (), {(): len(files)})
    yield gauge("cache_kept_bytes", "Bytes that are kept.", (), {(): sum(file.size_bytes for file in files)})
    yield gauge("cache_limit_bytes", "Bytes that may be kept.", (), {(): kept.most_bytes})
    yield counter("cache_evicted_files", "Files that made room for others.", (), {(): kept.evicted})
    words = "Files that were found rotten on the disk, and thrown away."
    yield counter("cache_thrown_away_files", words, (), {(): thrown_away})
    yield from space_of("cache", folder, "the cache")
