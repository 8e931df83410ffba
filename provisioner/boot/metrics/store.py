"""The image store of a boot host, and what fills it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import Metric

from provisioner.cluster.series import PREFIX, born, gauge

RESULTS: Final = ("succeeded", "failed")
SECONDS: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


class PullMeter:
    """What the filler of the store tells."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._pulls = Counter(
            f"{PREFIX}_image_pulls", "Images that were pulled from the registry.", ("result",), registry=registry
        )
        self._seconds = Histogram(
            f"{PREFIX}_image_pull_seconds", "How long the pull of an image took.", ("result",), buckets=SECONDS,
            registry=registry,
        )  # fmt: skip
        self._bytes = Counter(
            f"{PREFIX}_image_pulled_bytes", "Bytes of images that were pulled whole.", registry=registry
        )
        self._under_way = Gauge(f"{PREFIX}_image_pulls_under_way", "Pulls that run now.", registry=registry)
        born(self._pulls, RESULTS)
        born(self._seconds, RESULTS)

    def began(self) -> None:
        self._under_way.inc()

    def ended(self, *, succeeded: bool, fetched_bytes: int, seconds: float) -> None:
        self._under_way.dec()
        result = RESULTS[0] if succeeded else RESULTS[1]
        self._pulls.labels(result).inc()
        self._seconds.labels(result).observe(seconds)
        self._bytes.inc(fetched_bytes)


def space_of(name: str, folder: Path, words: str) -> Iterable[Metric]:
    """`<name>_free_bytes` and `<name>_size_bytes` of the disk that has `folder`; nothing where it cannot be told."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return
    # What is free for others than root: the service may be one of these.
    yield gauge(f"{name}_free_bytes", f"Free on the disk of {words}.", (), {(): found.f_bavail * found.f_frsize})
    yield gauge(f"{name}_size_bytes", f"Size of the disk of {words}.", (), {(): found.f_blocks * found.f_frsize})
