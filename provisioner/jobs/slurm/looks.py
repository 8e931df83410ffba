"""What Slurm says of all its nodes and jobs, asked once for all servers of a slurmrestd, and ahead of being needed.

Nobody asks while nobody wants to know. For `WANTED_SECONDS` after a look a slurmrestd is asked each `AHEAD_SECONDS`;
one that takes long to answer, so seldom that it spends a tenth of its time on that, if that is each `SELDOM_SECONDS`.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from provisioner.api.machinery.errors import Retryable
from provisioner.api.machinery.meta import rfc3339
from provisioner.jobs.model.ended import EndedJob
from provisioner.jobs.model.work import Job
from provisioner.jobs.slurm.answers import SlurmFailed
from provisioner.jobs.slurm.connections import Key
from provisioner.jobs.slurm.hostlist import count, expand
from provisioner.jobs.slurm.jobs import NodeJobs, Unplaced, as_job, held_by_kill_wait, requeued_from, sort_jobs
from provisioner.jobs.slurm.objects import MAX_PLACES, SlurmJob, SlurmNode
from provisioner.jobs.slurm.rest import SlurmRest
from provisioner.outbound.bulkhead import NoRoom
from provisioner.outbound.turns import Turn

# Slurm's jobs that are over, as long as it remembers them (MinJobAge in slurm.conf, 300 s unless it is set). Pure.

_NAME_LETTERS: Final = 256
_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


def places_of(job: SlurmJob) -> int:
    """On how many nodes it ran; 0 if it did not run, is not over, or its nodes are not readable."""
    try:
        return count(job.nodes) if job.outcome is not None and job.end is not None else 0
    except ValueError:
        return 0


def last_ended(counted: Iterable[tuple[SlurmJob, int]], most: int = MAX_PLACES) -> tuple[SlurmJob, ...]:
    """Of jobs with their `places_of` those that ran and are over, the last first: as many as ran on no more than `most`
    nodes, each counted for each job."""
    over = sorted((each for each in counted if each[1]), key=lambda each: each[0].end or _LONG_AGO, reverse=True)
    sums = itertools.accumulate(places for _, places in over)
    return tuple(job for (job, _), places in zip(over, sums, strict=True) if places <= most)


def as_ended(job: SlurmJob, prefix: str) -> EndedJob:
    """`job`: one of `last_ended`. Its servers are named as the Nodes are, without Slurm's `prefix`."""
    return EndedJob(
        kind="SlurmJob",
        key=f"Slurm job {job.id}",
        name=job.name[:_NAME_LETTERS] or job.label,
        servers=tuple(sorted({name.removeprefix(prefix) for name in expand(job.nodes)})),
        began=job.start,
        ended=job.end or _LONG_AGO,
        succeeded=job.outcome == "COMPLETED",
        reason=job.outcome or "",
        exit_code=job.exit_code,
        signal=job.signal,
        partition=job.partition or None,
        qos=job.qos or None,
    )


AHEAD_SECONDS: Final = 5.0
AHEAD_TIMES: Final = 10
"""Of how long an answer took."""
SELDOM_SECONDS: Final = 60.0
LATE_SECONDS: Final = 10.0
"""A view that is so much older than it should be is none: a new one comes, or it is not known what runs there."""
WANTED_SECONDS: Final = 90.0
"""Longer than the longest pause between two looks of a Maintenance that waits."""
ASKED_SECONDS: Final = 1.0
"""How long who would ask ahead rests while somebody else asks."""
FAILED_SECONDS: Final = 5.0
"""So long a failure counts for all servers, before the next of them asks again."""

Connect = Callable[[Key], SlurmRest]


@dataclass(frozen=True)
class SlurmCluster:
    """What one slurmrestd said. `began`: before it was asked, `ended`: when it had answered, by the monotonic clock."""

    began: float
    ended: float
    nodes: Mapping[str, SlurmNode]
    placed: Mapping[str, Sequence[SlurmJob]]
    """By node: those that are there, or are planned to be."""
    left: Mapping[str, Sequence[SlurmJob]]
    """By node: those that were requeued off it."""
    unplaced: Sequence[Unplaced]
    over: Sequence[SlurmJob] = ()
    """Those that have ended, as many as are borne."""
    told: dict[tuple[SlurmJob, str], Job] = field(default_factory=dict, compare=False, repr=False)
    """What `as_job` said before."""
    told_ended: dict[tuple[SlurmJob, str], EndedJob] = field(default_factory=dict, compare=False, repr=False)
    """What `ended_since` said before."""

    @property
    def next_at(self) -> float:
        """When it is worth asking anew."""
        return self.began + min(SELDOM_SECONDS, max(AHEAD_SECONDS, AHEAD_TIMES * (self.ended - self.began)))

    def jobs_of(self, node: SlurmNode, now: datetime) -> NodeJobs:
        """Those of one of its nodes."""
        ending = held_by_kill_wait(node, self.left.get(node.name, ()), now)
        return sort_jobs(node, self.placed.get(node.name, ()), self.unplaced, ending)

    def as_job(self, job: SlurmJob, prefix: str) -> Job:
        """What `jobs.as_job` says, once for all nodes of a job."""
        found = self.told.get((job, prefix))
        if found is None:
            found = self.told[job, prefix] = as_job(job, prefix)
        return found

    def ended_since(self, moment: datetime, prefix: str) -> Iterator[EndedJob]:
        for job in self.over:
            if job.end is None or job.end <= moment:
                return
            found = self.told_ended.get((job, prefix))
            if found is None:
                found = self.told_ended[job, prefix] = as_ended(job, prefix)
            yield found


@dataclass(frozen=True)
class PollFailure:
    """`since`: of the first in a row; `at`: of the last one, by the monotonic clock."""

    since: datetime
    at: float
    words: str

    def describe(self, *, given_up: bool) -> str:
        """The same words as long as nothing changes: they stand in the status of each Maintenance that waits."""
        return self.words + f"; so since {rfc3339(self.since)}, it is asked less often" * given_up


@dataclass
class _Entry:
    asking: threading.Lock = field(default_factory=threading.Lock)
    """Held by whoever asks: others wait for what that brings."""
    wanted_until: float = 0.0
    view: SlurmCluster | None = None
    failure: PollFailure | None = None
    acted: dict[str, float] = field(default_factory=dict)
    """By node: when it was changed last from here. What was seen before is out of date."""


class SlurmLooks:
    """Usable from several threads, and by several who each `connect` in their own way. Only `refresh` and `ahead` wait
    for a slurmrestd; nobody asks one under a key while another does."""

    def __init__(self, *, now: Callable[[], datetime], monotonic: Callable[[], float]) -> None:
        self._now = now
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._entries: dict[Key, _Entry] = {}

    def want(self, key: Key) -> None:
        """Somebody needs to know for a while from here."""
        with self._lock:
            self._entry(key).wanted_until = self._monotonic() + WANTED_SECONDS

    def find(self, key: Key, node: str) -> SlurmCluster | PollFailure | None:
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

    def last(self, key: Key) -> SlurmCluster | None:
        """What was seen last, however long ago."""
        with self._lock:
            entry = self._entries.get(key)
            return entry.view if entry is not None else None

    def failure(self, key: Key) -> PollFailure | None:
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

    def refresh(self, key: Key, node: str, connect: Connect) -> SlurmCluster | PollFailure:
        """Ask, unless somebody else does: then wait for that, as long as a call takes at most, and ask if `node` was
        changed since it began."""
        with self._lock:
            entry = self._entry(key)
        with entry.asking:
            return self.find(key, node) or self._ask(key, entry, connect)

    def _entry(self, key: Key) -> _Entry:
        return self._entries.setdefault(key, _Entry())

    def _ask(self, key: Key, entry: _Entry, connect: Connect) -> SlurmCluster | PollFailure:
        began = self._monotonic()
        try:
            rest = connect(key)
            # The nodes first: a job that starts between the two is then seen among the jobs.
            nodes = rest.nodes()
            jobs = rest.jobs()
            view = _view(nodes, jobs, began, self._monotonic)
        except SlurmFailed as error:
            with self._lock:
                before, words = entry.failure, str(error)
                if before is not None and isinstance(error.__cause__, NoRoom):
                    words = before.words  # why it was given up, not that it is
                since = before.since if before is not None else self._now()
                entry.failure = failure = PollFailure(since, self._monotonic(), words)
            return failure
        with self._lock:
            entry.view, entry.failure = view, None
            entry.acted = {node: at for node, at in entry.acted.items() if at > began}
        return view

    def ahead(self, url: str, connect: Connect) -> float | None:
        """Ask for what is wanted of `url` and nearly out of date; returns seconds until the next time, None: never.

        What has failed, or an API server that gives no credentials, is not asked ahead: whoever needs it asks.
        """
        try:
            return self._ahead(url, connect)
        except Retryable:
            return None

    def _ahead(self, url: str, connect: Connect) -> float | None:
        with self._lock:
            now = self._monotonic()
            self._entries = {
                key: entry for key, entry in self._entries.items() if now - entry.wanted_until < WANTED_SECONDS
            }
            wanted = [
                (key, entry)
                for key, entry in self._entries.items()
                if key.url == url and entry.view is not None and entry.failure is None and entry.wanted_until > now
            ]
        rests = [self._keep_up(key, entry, connect) for key, entry in wanted]
        known = [rest for rest in rests if rest is not None]
        return max(0.0, min(known)) if known else None

    def _keep_up(self, key: Key, entry: _Entry, connect: Connect) -> float | None:
        """Ask if it is time; seconds until it is again, None after a failure."""
        if not entry.asking.acquire(blocking=False):
            return ASKED_SECONDS
        try:
            with self._lock:
                found = entry.view if entry.failure is None else entry.failure
            if isinstance(found, SlurmCluster) and found.next_at <= self._monotonic():
                found = self._ask(key, entry, connect)
            return found.next_at - self._monotonic() if isinstance(found, SlurmCluster) else None
        finally:
            entry.asking.release()


def _view(
    nodes: Iterable[SlurmNode], jobs: Iterable[SlurmJob], began: float, monotonic: Callable[[], float]
) -> SlurmCluster:
    known = {node.name: node for node in nodes}
    placed: dict[str, list[SlurmJob]] = defaultdict(list)
    left: dict[str, list[SlurmJob]] = defaultdict(list)
    unplaced: list[Unplaced] = []
    over: list[tuple[SlurmJob, int]] = []
    with Turn() as turn:
        for job in jobs:
            turn.step()
            try:
                for name in dict.fromkeys(expand(job.places)):
                    if name in known:
                        placed[name].append(job)
            except ValueError as error:
                unplaced.append(Unplaced(job, str(error)))
            origin = requeued_from(job)
            if origin in known:
                left[origin].append(job)
            over.append((job, places_of(job)))
    return SlurmCluster(began, monotonic(), known, dict(placed), dict(left), unplaced, last_ended(over))
