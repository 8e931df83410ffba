"""What Slurm says of all its nodes and jobs, asked once for all servers of a slurmrestd, and ahead of being needed.

Nobody asks while nobody wants to know. For `WANTED_SECONDS` after a look a slurmrestd is asked each `AHEAD_SECONDS`;
one that takes long to answer, so seldom that it spends a tenth of its time on that, if that is each `SELDOM_SECONDS`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from provisioner.api.errors import Retryable
from provisioner.api.meta import rfc3339
from provisioner.jobs.slurm.answers import SlurmFailed
from provisioner.jobs.slurm.hostlist import expand
from provisioner.jobs.slurm.jobs import requeued_from
from provisioner.jobs.slurm.objects import SlurmJob, SlurmNode
from provisioner.jobs.slurm.rest import SlurmRest
from provisioner.outbound.bulkhead import NoRoom
from provisioner.outbound.turns import Turn

AHEAD_SECONDS: Final = 5.0
AHEAD_TIMES: Final = 10
"""Of how long an answer took."""
SELDOM_SECONDS: Final = 60.0
LATE_SECONDS: Final = 10.0
"""A view that is so much older than it should be is none: a new one comes, or it is not known what runs there."""
WANTED_SECONDS: Final = 90.0
"""Longer than the longest pause between two looks of a Maintenance that waits."""
FAILED_SECONDS: Final = 5.0
"""So long a failure counts for all servers, before the next of them asks again."""

Key = tuple[str, str, str | None]
"""URL, name of the Secret, certificate: who else asks may be shown other jobs."""


@dataclass(frozen=True)
class SlurmCluster:
    """What one slurmrestd said. `began`: before it was asked, `ended`: when it had answered, by the monotonic clock."""

    began: float
    ended: float
    nodes: Mapping[str, SlurmNode]
    jobs: Mapping[str, tuple[SlurmJob, ...]]
    """By node: all that concern it; by no name, those that may concern any."""

    @property
    def next_at(self) -> float:
        """When it is worth asking anew."""
        return self.began + min(SELDOM_SECONDS, max(AHEAD_SECONDS, AHEAD_TIMES * (self.ended - self.began)))

    def of(self, node: str) -> tuple[SlurmNode | None, tuple[SlurmJob, ...]]:
        return self.nodes.get(node), (*self.jobs.get(node, ()), *self.jobs.get("", ()))


@dataclass(frozen=True)
class Failure:
    """`since`: of the first in a row; `at`: of the last one, by the monotonic clock."""

    since: datetime
    at: float
    words: str

    def describe(self, *, given_up: bool) -> str:
        """The same words as long as nothing changes: they stand in the status of each Maintenance that waits."""
        return self.words + f"; so since {rfc3339(self.since)}, it is asked less often" * given_up


@dataclass
class _Entry:
    connect: Callable[[], SlurmRest]
    wanted_until: float = 0.0
    view: SlurmCluster | None = None
    failure: Failure | None = None
    acted: dict[str, float] = field(default_factory=dict)
    """By node: when it was changed last from here. What was seen before is out of date."""


class SlurmLooks:
    """Usable from several threads; only `refresh` and `ahead` wait for a slurmrestd."""

    def __init__(self, *, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._now = now
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._entries: dict[Key, _Entry] = {}

    def want(self, key: Key, connect: Callable[[], SlurmRest]) -> None:
        """Somebody needs to know for a while from here; by `connect` it is asked."""
        with self._lock:
            entry = self._entries.setdefault(key, _Entry(connect))
            entry.connect, entry.wanted_until = connect, self._monotonic() + WANTED_SECONDS

    def find(self, key: Key, node: str) -> SlurmCluster | Failure | None:
        """What is known now of `node`, without asking; None if that is out of date."""
        with self._lock:
            entry, now = self._entries.get(key), self._monotonic()
            if entry is None:
                return None
            if entry.failure is not None:
                return entry.failure if now - entry.failure.at < FAILED_SECONDS else None
            view = entry.view
            if view is None or now > view.next_at + LATE_SECONDS or view.began < entry.acted.get(node, view.began):
                return None
            return view

    def failure(self, key: Key) -> Failure | None:
        """The last one, however long ago, unless it was answered since."""
        with self._lock:
            entry = self._entries.get(key)
            return entry.failure if entry is not None else None

    def acted(self, key: Key, node: str) -> None:
        """`node` may have been changed just now."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                entry.acted[node] = self._monotonic()

    def refresh(self, key: Key) -> SlurmCluster | Failure:
        """Ask. To be called in one thread at a time for each key, after `want`."""
        with self._lock:
            entry = self._entries[key]
        began = self._monotonic()
        try:
            rest = entry.connect()
            # The nodes first: a job that starts between the two is then seen among the jobs.
            nodes = rest.nodes()
            jobs = rest.jobs()
            known = {node.name: node for node in nodes}
            view = SlurmCluster(began, self._monotonic(), known, _by_node(jobs, known))
        except SlurmFailed as error:
            with self._lock:
                before, words = entry.failure, str(error)
                if before is not None and isinstance(error.__cause__, NoRoom):
                    words = before.words  # why it was given up, not that it is
                since = before.since if before is not None else self._now()
                entry.failure = failure = Failure(since, self._monotonic(), words)
            return failure
        with self._lock:
            entry.view, entry.failure = view, None
            entry.acted = {node: at for node, at in entry.acted.items() if at > began}
        return view

    def ahead(self, url: str) -> float | None:
        """Ask for what is wanted of `url` and nearly out of date; returns seconds until the next time, None: never.

        What has failed, or an API server that gives no credentials, is not asked ahead: whoever needs it asks.
        """
        try:
            return self._ahead(url)
        except Retryable:
            return None

    def _ahead(self, url: str) -> float | None:
        with self._lock:
            now = self._monotonic()
            self._entries = {
                key: entry for key, entry in self._entries.items() if now - entry.wanted_until < WANTED_SECONDS
            }
            wanted = [
                (key, entry.view.next_at - now)
                for key, entry in self._entries.items()
                if key[0] == url and entry.view is not None and entry.failure is None and entry.wanted_until > now
            ]
        rests = []
        for key, rest in wanted:
            found = self.refresh(key) if rest <= 0 else None
            if isinstance(found, SlurmCluster):
                rest = found.next_at - found.ended
            if not isinstance(found, Failure):
                rests.append(rest)
        return max(0.0, min(rests)) if rests else None


def _by_node(jobs: Iterable[SlurmJob], nodes: Container[str]) -> dict[str, tuple[SlurmJob, ...]]:
    """The jobs by those of `nodes` that they concern; by no name, those whose nodes are not readable."""
    found: dict[str, list[SlurmJob]] = defaultdict(list)
    everywhere: list[SlurmJob] = []
    with Turn() as turn:
        for job in jobs:
            turn.step()
            try:
                names = set(expand(job.places))
            except ValueError:
                everywhere.append(job)
                continue
            left = requeued_from(job)
            for name in names if left is None else names | {left}:
                if name in nodes:
                    found[name].append(job)
    return {name: tuple(of_node) for name, of_node in found.items()} | {"": tuple(everywhere)}
