"""Pure functions over lists of conditions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from provisioner.api.meta import Condition


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
