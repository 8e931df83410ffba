"""Traces of jobs, and traffic for a cluster of any size made of one."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from provisioner.api.machinery.documents import Unreadable, read_bytes, read_csv
from provisioner.api.machinery.errors import NeedsHuman

COLUMNS: Final = ("timestamp", "duration", "num_gpus")
MAX_JOBS: Final = 20_000_000
LARGEST: Final = 1e12
JITTER_SECONDS: Final = 12 * 3600.0


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace. submitted: seconds since the trace began. duration: in seconds. gpus: how many it asks for."""

    submitted: float
    duration: float
    gpus: int


def read_trace(path: Path) -> list[TraceJob]:
    """Jobs of a CSV file with at least the columns timestamp, duration and num_gpus, the first one first.

    timestamp: ISO 8601, or seconds; without a zone it is UTC. duration: seconds. Jobs without GPUs, or that took no
    time, are left out. Raises: NeedsHuman, with file and line, for anything else.
    """
    found: list[tuple[float, float, int]] = []
    try:
        rows = read_csv(read_bytes(path).decode("utf-8-sig"))
        names = next(rows, (1, []))[1]
        missing = [name for name in COLUMNS if name not in names]
        if missing:
            raise NeedsHuman(
                f"trace '{path}' has no column {', '.join(missing)}; it has {', '.join(names)}",
                hint=f"its first line names its columns, {', '.join(COLUMNS)} among them",
            )
        for line, cells in rows:
            job = _read_row(path, line, dict(zip(names, cells, strict=False))) if cells else None
            if job is not None:
                found.append(job)
            if len(found) > MAX_JOBS:
                raise NeedsHuman(f"trace '{path}' has more than {MAX_JOBS} jobs", hint="take a part of it")
    except (OSError, UnicodeDecodeError, Unreadable) as error:
        raise NeedsHuman(f"trace '{path}' cannot be read: {error}", hint="name a CSV file in UTF-8") from error
    if not found:
        raise NeedsHuman(f"trace '{path}' has no job with a GPU", hint="name one that has")
    found.sort()
    begin = found[0][0]
    return [TraceJob(submitted - begin, duration, gpus) for submitted, duration, gpus in found]


def _read_row(path: Path, line: int, row: dict[str, str]) -> tuple[float, float, int] | None:
    try:
        job = _read_moment(row["timestamp"]), float(row["duration"]), int(row["num_gpus"])
    except (KeyError, ValueError) as error:
        raise NeedsHuman(
            f"line {line} of trace '{path}' is no job: {error}",
            hint="timestamp is ISO 8601 or seconds, duration seconds, num_gpus a whole number",
        ) from error
    if not all(abs(number) <= LARGEST for number in job):
        raise NeedsHuman(
            f"line {line} of trace '{path}' has a number that is none, or beyond {LARGEST:.0e}", hint="correct it"
        )
    return job if job[1] > 0 and job[2] > 0 else None


def _read_moment(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def mean_gpus(jobs: Iterable[TraceJob], begin: float, end: float) -> float:
    """How many GPUs the jobs use on average between two moments of the trace, did each start when it was submitted."""
    used = sum(max(0.0, min(job.submitted + job.duration, end) - max(job.submitted, begin)) * job.gpus for job in jobs)
    return used / (end - begin)


def scale_trace(jobs: Sequence[TraceJob], factor: float, seed: int) -> list[TraceJob]:
    """`factor` times as much work of the same kind. Raises: NeedsHuman if that is too much to simulate.

    Each job comes as often as the whole part of `factor`, and once more with the probability of the rest; copies are
    moved by up to half a day, so that they are not submitted together. Deterministic for a seed.
    """
    if factor * len(jobs) > MAX_JOBS:
        raise NeedsHuman(
            f"the trace would have to be scaled {factor:,.0f} times, to more than {MAX_JOBS:,} jobs",
            hint="ask for fewer servers, a lower load, or a day of the trace on which more runs",
        )
    source = random.Random(seed)  # noqa: S311 - a simulation, to be repeated
    whole, rest = int(factor), factor - int(factor)
    scaled: list[TraceJob] = []
    for job in jobs:
        for copy in range(whole + (source.random() < rest)):
            shift = source.uniform(-JITTER_SECONDS, JITTER_SECONDS) if copy else 0.0
            scaled.append(TraceJob(max(0.0, job.submitted + shift), job.duration, job.gpus))
    scaled.sort(key=lambda job: job.submitted)
    return scaled
