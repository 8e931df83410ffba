"""What is counted elsewhere, as Prometheus' series of the moment in which it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from provisioner.cluster.series import PREFIX

Families = Callable[[], Iterable[Metric]]


def counter(name: str, words: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
    """A counter with a value for each combination of the labels' values."""
    family = CounterMetricFamily(f"{PREFIX}_{name}", words, labels=labels)
    for key in sorted(values):
        family.add_metric(key, values[key])
    return family


def histogram(name: str, words: str, bounds: Sequence[float], counts: Sequence[int], total: float) -> Metric:
    """A histogram without labels. counts: of each class, the last of which has no upper bound; total: of all values."""
    family = HistogramMetricFamily(f"{PREFIX}_{name}", words)
    buckets, so_far = [], 0
    for bound, count in zip((*bounds, float("inf")), counts, strict=True):
        so_far += count
        buckets.append(("+Inf" if bound == float("inf") else str(bound), so_far))
    family.add_metric((), buckets, total)
    return family


def by_label(values: Mapping[str, float]) -> Mapping[tuple[str, ...], float]:
    """Of a family with one label: its values by that label's."""
    return {(word,): value for word, value in values.items()}


class FamiliesCollector(Collector):
    """Tells what `families` gives when Prometheus asks."""

    def __init__(self, families: Families) -> None:
        self._families = families

    def describe(self) -> Iterable[Metric]:
        """Nothing is counted at registration."""
        return []

    def collect(self) -> Iterable[Metric]:
        return self._families()
