"""Requests to the API server, counted and timed where they are sent: one meter for whatever a process does there.

No label holds the name of an object: of a path its kind is told, and what is done with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry

from provisioner.cluster.request_name import VERBS
from provisioner.cluster.series import born, new_counter, new_histogram

CODES: Final = ("2xx", "401", "403", "404", "409", "429", "4xx", "5xx", "none")
"""Classes of answers; those of which an operator wants to know apart are named. `none`: there was no answer."""
SECONDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_MOST_RESOURCES: Final = 200
"""Kinds that are told apart. A site has as many as it has groups of kinds that we use: a few dozen."""


def class_of(status: int | None) -> str:
    """One of CODES. `status`: of HTTP; None if there was no answer."""
    if status is None:
        return "none"
    if str(status) in CODES:
        return str(status)
    return f"{status // 100}xx" if status // 100 in (4, 5) else "2xx"


class RequestMeter:
    """Counts each request with its answer. Usable from several threads. `clock`: monotonic, in seconds.

    A watch is counted, and timed, up to the first byte of its answer: how long it then lasts says nothing.
    """

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: set[tuple[str, str]] = set()
        self._answered: float | None = None
        words = "Requests to the API server, by what was asked and the class of the answer; none: there was no answer."
        self._requests = new_counter(registry, "api_requests", words, ("verb", "resource", "code"))
        words = "How long the API server took to answer, those requests included that got no answer."
        self._seconds = new_histogram(registry, "api_request_seconds", words, ("verb", "resource"), SECONDS)

    def seen(self, verb: str, resource: str, status: int | None, seconds: float) -> None:
        """One request is over. `status`: of HTTP; None if there was no answer."""
        with self._lock:
            if status is not None:
                self._answered = self._clock()
            if (verb, resource) not in self._known and len(self._known) >= _MOST_RESOURCES * len(VERBS):
                resource = "other"
            is_new = (verb, resource) not in self._known
            self._known.add((verb, resource))
        if is_new:
            born(self._requests, (verb,), (resource,), CODES)
        self._requests.labels(verb, resource, class_of(status)).inc()
        self._seconds.labels(verb, resource).observe(seconds)

    def answered_ago(self) -> float | None:
        """Seconds since the API server last answered anything, be it a refusal; None if it never did."""
        with self._lock:
            return None if self._answered is None else max(0.0, self._clock() - self._answered)
