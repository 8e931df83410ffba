"""Pure functions over lists of conditions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from provisioner.api.machinery.meta import Condition, ConditionStatus, ObjectMeta, rfc3339


class _Conditions(Protocol):
    @property
    def conditions(self) -> tuple[Condition, ...]: ...


class Conditioned(Protocol):
    """An object whose status has conditions."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def status(self) -> _Conditions: ...


def find_condition(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of that type; the last one if a foreign writer left duplicates."""
    found = None
    for condition in conditions:
        if condition.type == type_:
            found = condition
    return found


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    found = find_condition(conditions, type_)
    return found is not None and found.status == "True"


def condition_of(
    subject: Conditioned, type_: str, status: ConditionStatus | bool, reason: str, message: str, now: datetime
) -> Condition:
    """What holds of `subject` as it is now: since `now`, or since before where the status did not change."""
    if isinstance(status, bool):
        status = "True" if status else "False"
    wanted = Condition(
        type=type_,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=rfc3339(now),
        observed_generation=subject.metadata.generation,
    )
    return settle_condition(subject.status.conditions, wanted)


def settle_condition(existing: Iterable[Condition], wanted: Condition) -> Condition:
    """`wanted`, with the transition time of the existing one where the status did not change."""
    before = find_condition(existing, wanted.type)
    if before is not None and before.status == wanted.status:
        return replace(wanted, last_transition_time=before.last_transition_time)
    return wanted


def merge_conditions(existing: Iterable[Condition], *wanted: Condition) -> tuple[Condition, ...]:
    """`existing` with each of `wanted` put in place of the one of its type; order kept, new ones at the end."""
    existing = tuple(existing)
    settled = {condition.type: settle_condition(existing, condition) for condition in wanted}
    kept = {condition.type: condition for condition in existing}
    return tuple({**kept, **settled}.values())
