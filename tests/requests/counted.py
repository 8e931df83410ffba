"""A client that counts what it asks the API server, by component, verb and kind. Watches are not requests of a step."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provisioner.api.machinery.errors import Conflict
from provisioner.cluster.access import Access, load_configuration
from provisioner.cluster.client import Cluster
from provisioner.cluster.transport import Transport

ON_A_TIMER = ("join-tokens", "leader")
"""What looks once a minute, or renews, whatever a server does."""
QUIET_SECONDS, PATIENCE_SECONDS = 3.0, 300.0


class Counts:
    """Requests so far, by (component, verb, kind)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counter: Counter[tuple[str, str, str]] = Counter()
        self.log: list[str] = []
        self.conflicts = 0
        self._under_way = 0
        self._last = time.monotonic()

    def add(self, component: str, what: str, path: str) -> None:
        verb, kind = what.split()[:2]
        if path.endswith("/status"):
            kind += "/status"
        with self._lock:
            self._counter[component, verb, kind] += 1
            self.log.append(f"{component}: {what}")

    @contextmanager
    def under_way(self, component: str) -> Iterator[None]:
        """While a request is answered."""
        counts = component not in ON_A_TIMER
        with self._lock:
            self._under_way += counts
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= counts
                self._last = time.monotonic() if counts else self._last

    def come_to_rest(self) -> None:
        """Until nobody asks for anything, and nobody has for a while."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._under_way or time.monotonic() - self._last < QUIET_SECONDS:
            assert time.monotonic() < deadline, self.log[-40:]
            time.sleep(0.1)

    def take(self) -> Counter[tuple[str, str, str]]:
        """What was counted since the last time, without what runs on a timer."""
        with self._lock:
            counted, self._counter = self._counter, Counter()
            self.log.clear()
            self.conflicts = 0
        return Counter({key: n for key, n in counted.items() if key[0] not in ON_A_TIMER})

    def connect(self, kubeconfig: Path, component: str | None = None) -> Cluster:
        """A client for `component`; None: for controllers, each told by the name of its threads."""
        access = Access(lambda: load_configuration(kubeconfig, None), kubeconfig)
        return Cluster(CountingTransport(Transport(access, user_agent="counted"), self, component))


class CountingTransport:
    """Passes everything on."""

    def __init__(self, inner: Transport, counts: Counts, component: str | None) -> None:
        self._inner, self._counts, self._component = inner, counts, component

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def acting_as(self, user: str) -> CountingTransport:
        return CountingTransport(self._inner.acting_as(user), self._counts, self._component)

    def request(self, method: str, path: str, *, what: str, **arguments: Any) -> dict[str, Any]:
        component = self._component or threading.current_thread().name.rpartition("-")[0]
        body = arguments.get("body") or {}
        if isinstance(body, dict) and body.get("kind") == "Event":
            what = f"{what} {body['involvedObject']['kind']} {body['reason']}"
        self._counts.add(component, what, path)
        try:
            with self._counts.under_way(component):
                return self._inner.request(method, path, what=what, **arguments)
        except Conflict:
            self._counts.conflicts += 1
            raise


def table(counted: Counter[tuple[str, str, str]]) -> str:
    """One line for each component, verb and kind, and their sum."""
    lines = [f"{n:4}  {component:18} {verb:7} {kind}" for (component, verb, kind), n in sorted(counted.items())]
    return "\n".join([*lines, f"{sum(counted.values()):4}  in all"])


def lists(counted: Counter[tuple[str, str, str]], allowed: Iterable[str] = ()) -> list[tuple[str, str, str]]:
    """Which of them read a collection of a kind that is not allowed."""
    return [key for key in counted if key[1] == "LIST" and key[2] not in allowed]
