"""How a metric of ours is named and served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

PREFIX: Final = "provisioner"


def born(metric: Counter | Gauge | Histogram, *values: Iterable[str]) -> None:
    """Serve each combination of the labels' values from the start."""
    for labels in product(*values):
        metric.labels(*labels)


def gauge(name: str, words: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> GaugeMetricFamily:
    """What is measured when Prometheus asks: a value for each combination of the labels' values."""
    family = GaugeMetricFamily(f"{PREFIX}_{name}", words, labels=labels)
    for key in sorted(values):
        family.add_metric(key, values[key])
    return family
