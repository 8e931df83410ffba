"""How a metric of ours is named and served."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily

from provisioner import __version__

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


def tell_process(registry: CollectorRegistry, component: str) -> None:
    """What every service tells of its own process: version and component, processor time, memory, open files."""
    words = "1; which version of which service this is."
    built = Gauge(f"{PREFIX}_build_info", words, ("version", "component"), registry=registry)
    built.labels(__version__, component).set(1)
    ProcessCollector(registry=registry)
