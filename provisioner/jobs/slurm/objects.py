"""Slurm's nodes and jobs, read from slurmrestd's answers of every version that is spoken (22.05 to 25.11). Pure.

States are a word in the older versions and a list of words in the newer ones; numbers became objects.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from provisioner.jobs.slurm.hostlist import MAX_NAMES, count, includes

REASON_PREFIX: Final = "provisioner: "
"""How every reason begins with which this project drains a node."""

KEPT_BYTES: Final = 32 * 1024 * 1024
"""In memory, of one answer: some 30,000 jobs as they usually are."""
OBJECT_BYTES: Final = 500
MAX_PLACES: Final = 4 * MAX_NAMES
MAX_UNREADABLE: Final = 100
"""Jobs whose hosts are not readable concern every node."""
MAX_STATES: Final = 32
_OVER: Final = (
    *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL"),
    *("PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY"),
)
_MAX_CODE: Final = 2**31
_MAX_NUMBER: Final = 2**63
_NO_LIMIT: Final = 2**32 - 2
"""NO_VAL, and above it INFINITE, where a version writes them as numbers."""
_GRES_LETTERS: Final = 4096
_GPUS: Final = re.compile(r"(?:^|,)gpu(?::[^:,()]{1,64})?:([0-9]{1,6})(?![0-9:])")
"""In `gpu:h100:8(S:0-1),nic:2` and `gpu:h100:2(IDX:0-1),nic:0`."""

_BUSY: Final = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
_OUT_OF_USE: Final = frozenset({"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "ERROR"})
_DRAIN: Final = frozenset({"DRAIN", "DRAINED", "DRAINING"})
_RUNNING: Final = frozenset({"RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING", "RESIZING"})


@dataclass(frozen=True)
class SlurmNode:
    name: str
    states: tuple[str, ...]
    """The base state, and the flags that Slurm puts beside it."""
    reason: str
    free: float | None = None
    """Share of it on which no job runs: by its GPUs, or by its CPUs if it has none; None if that is not said. What is
    said of all nodes at once is true; slurmctld counts for that alone, and says of a single one what it counted last.
    """

    @property
    def state(self) -> str:
        """As Slurm's own tools write it: `IDLE+DRAIN`."""
        return "+".join(self.states)

    @property
    def is_drained(self) -> bool:
        """Takes no job, because somebody said so; jobs may still run."""
        return not _DRAIN.isdisjoint(self.states)

    @property
    def takes_jobs(self) -> bool:
        return _OUT_OF_USE.isdisjoint(self.states)

    @property
    def is_busy(self) -> bool:
        return not _BUSY.isdisjoint(self.states)

    @property
    def is_ours(self) -> bool:
        """Drained by this project, whichever Maintenance it was."""
        return self.is_drained and self.reason.startswith(REASON_PREFIX)


@dataclass(frozen=True)
class SlurmJob:
    id: int
    label: str
    """Its id as users know it: `4711`, or `4700_3` for a task of an array."""
    name: str
    user: str
    states: tuple[str, ...]
    nodes: str
    """As Slurm writes them, such as `r01-u[01-04]`; `expand` reads it."""
    planned_nodes: str
    is_batch: bool
    may_requeue: bool
    admin_comment: str
    partition: str = ""
    qos: str = ""
    start: datetime | None = None
    """When it began, or, of a pending one, is expected to."""
    end: datetime | None = None
    """When it ended, or when its time limit ends it; without a limit Slurm says a year after its start."""
    has_limit: bool = False
    exit_code: int | None = None
    signal: int | None = None
    """By which it was ended."""

    @property
    def is_on_nodes(self) -> bool:
        """Something of it is on its nodes: the job itself, its prolog or its epilog."""
        return not _RUNNING.isdisjoint(self.states)

    @property
    def is_completing(self) -> bool:
        return "COMPLETING" in self.states

    @property
    def outcome(self) -> str | None:
        """How it ended; None while something of it is there, or is to come."""
        return None if self.is_on_nodes else next((state for state in self.states if state in _OVER), None)

    @property
    def began(self) -> datetime | None:
        return self.start if self.is_on_nodes else None

    @property
    def ends(self) -> datetime | None:
        """When its time limit ends it; None without one, and while it is suspended, when its time stands still."""
        return self.end if self.is_on_nodes and self.has_limit and "SUSPENDED" not in self.states else None

    @property
    def state(self) -> str:
        return "+".join(self.states)

    @property
    def places(self) -> str:
        """Where it is, or is planned to be, as Slurm writes that; nothing if it is over."""
        if self.is_on_nodes:
            return self.nodes
        return self.planned_nodes if "PENDING" in self.states else ""

    def is_placed_on(self, node: str) -> bool:
        """Whether it is there, or is planned to be. Raises: ValueError if its nodes are not readable."""
        return includes(self.places, node)


@dataclass(frozen=True)
class SlurmReservation:
    name: str
    nodes: str
    """As Slurm writes them."""
    begins: datetime | None
    ends: datetime | None


class Bounds:
    """What is kept of one answer, all objects together. Raises: ValueError for more than a program can bear."""

    def __init__(self) -> None:
        self._bytes = self._places = self._unreadable = 0

    def node(self, node: SlurmNode) -> SlurmNode:
        self._count(node.name, node.reason, *node.states)
        return node

    def job(self, job: SlurmJob) -> SlurmJob:
        texts = (job.name, job.user, job.nodes, job.planned_nodes, job.admin_comment, job.partition, job.qos)
        self._count(*texts, *job.states)
        try:
            self._places += count(job.places)
        except ValueError as error:
            self._unreadable += 1
            if self._unreadable > MAX_UNREADABLE:
                raise ValueError(f"the hosts of more than {MAX_UNREADABLE} jobs are not readable: {error}") from error
        if self._places > MAX_PLACES:
            raise ValueError(f"its jobs are on more than {MAX_PLACES} hosts in all, each counted for each job")
        return job

    def reservation(self, reservation: SlurmReservation) -> SlurmReservation:
        self._count(reservation.name, reservation.nodes)
        return reservation

    def _count(self, *texts: str) -> None:
        self._bytes += OBJECT_BYTES + sum(map(sys.getsizeof, texts))
        if self._bytes > KEPT_BYTES:
            raise ValueError(f"what is to be kept of it takes more than {KEPT_BYTES} bytes")


def read_node(body: Mapping[str, Any]) -> SlurmNode:
    states = (*_words(body.get("state")), *_words(body.get("state_flags")))
    return SlurmNode(
        name=_text(body.get("name")),
        states=tuple(dict.fromkeys(states)),
        reason=_text(body.get("reason")),
        free=_free(body),
    )


def read_job(body: Mapping[str, Any]) -> SlurmJob:
    number = _number(body.get("job_id")) or 0
    exit_code, signal = _read_exit(body.get("exit_code"))
    array, task = _number(body.get("array_job_id")), _number(body.get("array_task_id"))
    return SlurmJob(
        id=number,
        label=f"{array}_{task}" if array and task is not None else str(number),
        name=_text(body.get("name")),
        user=_text(body.get("user_name") or body.get("user_id")) or "somebody",
        states=_words(body.get("job_state")),
        nodes=_text(body.get("nodes")),
        planned_nodes=_text(body.get("scheduled_nodes") or body.get("sched_nodes")),
        is_batch=bool(body.get("batch_flag")),
        may_requeue=bool(body.get("requeue")),
        admin_comment=_text(body.get("admin_comment")),
        partition=_text(body.get("partition")),
        qos=_text(body.get("qos")),
        start=_moment(body.get("start_time")),
        end=_moment(body.get("end_time")),
        has_limit=(_said_number(body.get("time_limit")) or _NO_LIMIT) < _NO_LIMIT,
        exit_code=exit_code,
        signal=signal,
    )


def read_reservation(body: Mapping[str, Any]) -> SlurmReservation:
    return SlurmReservation(
        name=_text(body.get("name")),
        nodes=_text(body.get("node_list")),
        begins=_moment(body.get("start_time")),
        ends=_moment(body.get("end_time")),
    )


def _read_exit(value: Any) -> tuple[int | None, int | None]:
    """Exit code and signal: 22.05 writes both as wait(2) gives them, in one number."""
    if isinstance(value, Mapping) and "set" not in value:
        said = value.get("signal")
        by = said if isinstance(said, Mapping) else {}
        code, signal = _said_number(value.get("return_code")), _said_number(by.get("id", by.get("signal_id")))
    else:
        status = _said_number(value)
        code, signal = (None, None) if status is None else (status >> 8 & 0xFF, status & 0x7F)
    return code if code is not None and 0 <= code < _MAX_CODE else None, signal if signal in range(1, 65) else None


def _moment(value: Any) -> datetime | None:
    """From seconds since the epoch; None for 0, by which Slurm says that it is not known."""
    seconds = _said_number(value)
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds else None
    except (OverflowError, OSError, ValueError):
        return None


def _free(body: Mapping[str, Any]) -> float | None:
    by_cpus = _share(_said_number(body.get("cpus")), _said_number(body.get("alloc_cpus")))
    by_gpus = _share(_gpus(body.get("gres")), _gpus(body.get("gres_used")))
    # A job that has all CPUs, such as one with --exclusive, leaves the GPUs that it did not ask for to nobody.
    return by_gpus if by_gpus is not None and by_cpus != 0 else by_cpus


def _share(total: int | None, used: int | None) -> float | None:
    return min(1.0, max(0.0, 1 - used / total)) if total and total > 0 and used is not None else None


def _gpus(text: Any) -> int | None:
    found = _GPUS.findall(text[:_GRES_LETTERS]) if isinstance(text, str) else ()
    return sum(map(int, found)) if found else None


def _text(value: Any) -> str:
    """Whatever users wrote there, with a mark in place of what is no text; nothing for nothing."""
    return str(value or "").encode(errors="replace").decode()


def _words(value: Any) -> tuple[str, ...]:
    """`"idle"`, `"IDLE+DRAIN"` or `["IDLE", "DRAIN"]`."""
    texts = value if isinstance(value, list) else [value] if value else []
    # Slurm marks a node that does not answer with a star behind its state.
    words = (word.rstrip("*~#$@^!%").upper() for text in texts for word in str(text).split("+") if word)
    return tuple(itertools.islice(words, MAX_STATES))


def _said_number(value: Any) -> int | None:
    """None for what is no number: an answer is not worth less for that."""
    try:
        return _number(value)
    except ValueError:
        return None


def _number(value: Any) -> int | None:
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") else None
    if not isinstance(value, int | float):
        return None
    if not -_MAX_NUMBER < value < _MAX_NUMBER:
        raise ValueError(f"{value!r:.40} is no number of a job")
    return int(value)
