"""What is measured of the parts of a process of controllers: queues, reconciles, watches, Leases, its own checks, and
the certificates on which it stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog
from cryptography import x509
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from provisioner.cluster.controller import Controller
from provisioner.cluster.health.checks import Check
from provisioner.cluster.informer import Informer
from provisioner.cluster.process import Process
from provisioner.cluster.series import Values, born, counter, gauge, new_counter, new_histogram

log = structlog.get_logger()

SECONDS: Final = (0.005, 0.02, 0.1, 0.5, 1, 5, 15, 60, 300)
ERRORS: Final = ("Conflict", "Retryable", "NeedsHuman", "Failed")
"""Another writer was faster; it is tried again; a person has to act; a fault of ours."""


class ControllerMeter:
    """Of controllers, by their name: each leadership has new ones, and the series go on."""

    def __init__(self, registry: CollectorRegistry) -> None:
        words = "How long keys waited for a worker that could have been worked on."
        self.waits = new_histogram(registry, "queue_wait_seconds", words, ("controller",), SECONDS)
        words = "Keys that were put back, to be tried again after a pause."
        self.retries = new_counter(registry, "queue_retries", words, ("controller",))
        words = "How long reconciles took, with or without success."
        self.reconciles = new_histogram(registry, "reconcile_seconds", words, ("controller",), SECONDS)
        words = "Reconciles that did not succeed, by what came of it."
        self.errors = new_counter(registry, "reconcile_errors", words, ("controller", "error"))

    def observe(self, controllers: Iterable[Controller]) -> None:
        """Measure these, from now on."""
        for controller in controllers:
            controller.observe(_OfController(self, controller.name))


class _OfController:
    """Is a ReconcileObserver. Its metrics are looked up once: it is told several times for each key."""

    def __init__(self, meter: ControllerMeter, name: str) -> None:
        born(meter.errors, (name,), ERRORS)
        self._wait = meter.waits.labels(name)
        self._retry = meter.retries.labels(name)
        self._reconcile = meter.reconciles.labels(name)
        self._errors = {error: meter.errors.labels(name, error) for error in ERRORS}

    def taken(self, waited_seconds: float) -> None:
        self._wait.observe(waited_seconds)

    def retried(self) -> None:
        self._retry.inc()

    def reconciled(self, seconds: float, error: str | None) -> None:
        self._reconcile.observe(seconds)
        if error is not None:
            self._errors[error].inc()


class LeaseMeter:
    """Is a LeaseObserver."""

    def __init__(self, registry: CollectorRegistry) -> None:
        words = "How often this replica began and ceased to lead; Lost: without having handed the Lease back."
        self._changes = new_counter(registry, "lease_transitions", words, ("lease", "change"))

    def stand(self, lease: str) -> None:
        """It stands for election there."""
        born(self._changes, (lease,), ("Acquired", "Released", "Lost"))

    def lease_acquired(self, lease: str) -> None:
        self._changes.labels(lease, "Acquired").inc()

    def lease_ended(self, lease: str, *, lost: bool) -> None:
        self._changes.labels(lease, "Lost" if lost else "Released").inc()


def process_families(process: Process) -> Iterable[Metric]:
    """How the parts of the process stand. Cheap: nothing in it grows with the fleet."""
    yield from _queues(process.controllers)
    yield from _watches(process.caches)
    words = "1 if the check of /readyz passes, else 0."
    yield gauge("readiness_check", words, ("check",), _passed(process.readiness()))
    words = "1 if the check of /healthz passes, else 0."
    yield gauge("liveness_check", words, ("check",), _passed(process.liveness()))


def _passed(checks: Sequence[Check]) -> Values:
    return {(check.name,): float(check.look().is_well) for check in checks}


def _queues(controllers: Sequence[Controller]) -> Iterable[Metric]:
    def of_each(value: Callable[[Controller], float]) -> Values:
        """Of several of one name the largest: the BMC queues are such."""
        values: Values = {}
        for each in controllers:
            values[(each.name,)] = max(values.get((each.name,), 0.0), value(each))
        return values

    words = "Keys that wait for a worker."
    yield gauge("queue_depth", words, ("controller",), of_each(lambda each: len(each.queue)))
    words = "How long the key has waited for a worker that has waited longest."
    yield gauge("queue_oldest_seconds", words, ("controller",), of_each(lambda each: each.queue.oldest_seconds()))
    words = "How long the reconcile has lasted that is under way longest."
    yield gauge("reconcile_longest_seconds", words, ("controller",), of_each(lambda each: each.longest_seconds()))


def _watches(caches: Sequence[Informer]) -> Iterable[Metric]:
    """Of copies of collections, by kind; of several of one kind the worst, and their sum."""
    synced: Values = {}
    heard: Values = {}
    objects: Values = {}
    lists: Values = {}
    failures: Values = {}
    for cache in caches:
        kind = (cache.kind,)
        synced[kind] = min(synced.get(kind, 1.0), float(cache.has_synced))
        heard[kind] = max(heard.get(kind, 0.0), cache.heard_seconds())
        objects[kind] = objects.get(kind, 0.0) + len(cache)
        lists[kind] = lists.get(kind, 0.0) + cache.lists
        failures[kind] = failures.get(kind, 0.0) + cache.failures
    yield gauge("watch_synced", "1 once the copy of that kind has been complete.", ("kind",), synced)
    words = "How long ago the API server was last heard of that kind: how old the copy may be. Up to 60 s is usual."
    yield gauge("watch_age_seconds", words, ("kind",), heard)
    yield gauge("watch_objects", "Objects in the copy.", ("kind",), objects)
    words = "How often the kind was listed whole: once, and again after what a watch could not go on from."
    yield counter("watch_lists", words, ("kind",), lists)
    yield counter("watch_failures", "Lists and watches that failed; they are tried again.", ("kind",), failures)


def certificate_ends(read: Mapping[str, Callable[[], str | None]]) -> Iterable[Metric]:
    """`read`: by purpose, what gives the PEM as it is now; None if there is none. What cannot be read is left out."""
    found = {purpose: _end(purpose, look) for purpose, look in read.items()}
    ends: Values = {(purpose,): end for purpose, end in found.items() if end is not None}
    words = "When the certificate ends, in seconds since 1970; of several in one file the last."
    yield gauge("certificate_expiry_timestamp_seconds", words, ("purpose",), ends)


def _end(purpose: str, read: Callable[[], str | None]) -> float | None:
    try:
        pem = read()
        found = x509.load_pem_x509_certificates(pem.encode()) if pem else []
    except (OSError, ValueError) as error:
        log.debug("certificate not read", purpose=purpose, error=str(error))
        return None
    return max((each.not_valid_after_utc.timestamp() for each in found), default=None)
