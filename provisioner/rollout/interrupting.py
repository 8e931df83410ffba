"""Which jobs a rollout ends, at a deadline, and with them on which servers. Pure.

A job that spans servers ends on all of them, and so do those that share a server with it. Such servers are taken
together, or none of them: a job of which half the servers were updated would be ended again for the other half.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from provisioner.api.pools.upgrade_strategy import UpgradeDeadline
from provisioner.rollout.fleet import Member
from provisioner.rollout.room import RolloutCapacity
from provisioner.rollout.wait import MemberWait


@dataclass(frozen=True, slots=True)
class Interruption:
    """A server whose jobs are told now that they end at that moment, in seconds since the epoch."""

    name: str
    at: float


def may_be_ended_from(
    deadline: UpgradeDeadline | None,
    began: float,
    job_began: float,
    partition: str | None = None,
    qos: str | None = None,
) -> float | None:
    """From when a job that began at `job_began` may be ended for a rollout that began at `began`; None if never.

    partition, qos: of a job of Slurm. Whether its owner forbids it is not asked here.
    """
    if deadline is None:
        return None
    for allowed, own in ((deadline.partitions, partition), (deadline.qos, qos)):
        if allowed and own not in allowed:
            return None
    return max(began + deadline.after_seconds, job_began + deadline.minimum_run_seconds)


def find_interrupted(
    busy: Sequence[Member], room: RolloutCapacity, warning: float, now: float
) -> tuple[list[Interruption], dict[str, MemberWait]]:
    """Servers whose jobs are told now of their end, and those that never are, as they are too many at once.

    Who may be ended first comes first, then who runs on fewer servers. What is chosen takes its place in `room`.
    """
    soonest = min((m.runs.interruptible for m in busy if m.runs and m.runs.interruptible is not None), default=None)
    if not _is_due(soonest, warning, now):
        return [], {}
    chosen: list[Interruption] = []
    too_wide: dict[str, MemberWait] = {}
    groups = [(due, group) for group in _groups(busy) if (due := _due(group)) is not None]
    groups = [(due, group) for due, group in groups if _is_due(due, warning, now)]
    for due, group in sorted(groups, key=lambda each: (each[0], len(each[1]), each[1][0].name)):
        if not room.could_take(group):
            words = (
                f"its jobs run on {len(group)} servers together, more than may be updated at once: they are not ended"
            )
            jobs = sorted({key for member in group if member.runs is not None for key in member.runs.jobs})
            too_wide.update(dict.fromkeys((m.name for m in group), MemberWait("Gang", words, tuple(jobs))))
        elif room.can_take(group):
            for member in group:
                room.take(member)
                chosen.append(Interruption(member.name, max(due, now + warning)))
    return chosen, too_wide


def _is_due(interruptible: float | None, warning: float, now: float) -> bool:
    return interruptible is not None and now >= interruptible - warning


def _due(group: Iterable[Member]) -> float | None:
    """From when all jobs of the group may be ended; None if one never may."""
    moments = [member.runs.interruptible if member.runs is not None else None for member in group]
    known = [moment for moment in moments if moment is not None]
    return max(known) if known and len(known) == len(moments) else None


def _groups(busy: Sequence[Member]) -> list[list[Member]]:
    """Servers that are connected by jobs, each in the order of `busy`."""
    on: dict[str, list[int]] = {}
    for number, member in enumerate(busy):
        for key in member.runs.jobs if member.runs is not None else ():
            on.setdefault(key, []).append(number)
    groups: list[list[Member]] = []
    seen: set[int] = set()
    for number in range(len(busy)):
        if number not in seen:
            connected = _connected(number, busy, on)
            seen |= connected
            groups.append([busy[each] for each in sorted(connected)])
    return groups


def _connected(start: int, busy: Sequence[Member], on: dict[str, list[int]]) -> set[int]:
    found, todo = {start}, [start]
    while todo:
        runs = busy[todo.pop()].runs
        for key in runs.jobs if runs is not None else ():
            for other in on[key]:
                if other not in found:
                    found.add(other)
                    todo.append(other)
    return found
