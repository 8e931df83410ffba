"""How a metric of ours is named and served."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from provisioner import __version__

PREFIX: Final = "provisioner"

Values = dict[tuple[str, ...], float]
"""By the values of labels."""
Families = Callable[[], Iterable[Metric]]


def new_counter(registry: CollectorRegistry, name: str, words: str, labels: Sequence[str] = ()) -> Counter:
    return Counter(f"{PREFIX}_{name}", words, labels, registry=registry)


def new_histogram(
    registry: CollectorRegistry, name: str, words: str, labels: Sequence[str], buckets: Sequence[float]
) -> Histogram:
    return Histogram(f"{PREFIX}_{name}", words, labels, buckets=buckets, registry=registry)


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


def counter(name: str, words: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
    """The same of what is counted elsewhere."""
    family = CounterMetricFamily(f"{PREFIX}_{name}", words, labels=labels)
    for key in sorted(values):
        family.add_metric(key, values[key])
    return family


def by_label(values: Mapping[str, float]) -> Values:
    """Of a family with one label: its values by that label's."""
    return {(word,): value for word, value in values.items()}


def counts_of(found: Mapping[str, int], states: Iterable[str]) -> Values:
    """How many are in each of `states`, by the one label that says so."""
    return {(state,): found.get(state, 0) for state in states}


class FamiliesCollector(Collector):
    """Tells what `families` gives when Prometheus asks."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        """Nothing is counted at registration."""
        return []

    def collect(self) -> Iterable[Metric]:
        return self._families()


def tell_process(registry: CollectorRegistry, component: str) -> None:
    """What every service tells of its own process: version and component, processor time, memory, open files."""
    words = "1; which version of which service this is."
    built = Gauge(f"{PREFIX}_build_info", words, ("version", "component"), registry=registry)
    built.labels(__version__, component).set(1)
    ProcessCollector(registry=registry)
