"""How long Maintenances are kept, and how they are named."""

from __future__ import annotations

from datetime import timedelta

import pytest

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.maintenance import SlurmDrain
from provisioner.maintenance.status.finished import is_due, newest_first
from provisioner.rules.requests import next_name
from tests.maintenance.samples import NOON, at, maintenance


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], "r01-u01-1"),
        (["r01-u01-1", "r01-u01-2"], "r01-u01-3"),
        (["r01-u01-9", "r01-u01-10"], "r01-u01-11"),
        (["r01-u01-999999998"], "r01-u01-999999999"),
        (["r01-u01-999999999", "r01-u01-1", "r01-u01-3"], "r01-u01-2"),
        (["r01-u01-999999999", "r01-u01-1000000000"], "r01-u01-1"),
        (["r01-u01-x", "r01-u01-2-5", "r01-u011-7", "by-hand"], "r01-u01-1"),
    ],
)
def test_the_next_number_is_one_more_than_the_highest_that_can_be(names: list[str], expected: str) -> None:
    assert next_name("r01-u01", names) == expected


def ended(count: int, days_ago: int) -> list:  # type: ignore[type-arg]
    moment = NOON - timedelta(days=days_ago)
    return [
        maintenance(n, phase="Completed", finished_time=rfc3339(moment + timedelta(minutes=n)))
        for n in range(1, count + 1)
    ]


def test_the_last_ten_are_kept_however_old() -> None:
    assert is_due(ended(10, days_ago=400), NOON) is None
    due = is_due(ended(11, days_ago=400), NOON)
    assert due is not None
    assert due.name == "r01-u01-1"


def test_two_weeks_are_kept_however_many() -> None:
    assert is_due(ended(30, days_ago=13), NOON) is None


def test_what_has_not_ended_is_never_due_and_not_counted() -> None:
    running = [maintenance(n, phase="Waiting") for n in range(1, 20)]
    assert is_due(running, NOON) is None
    assert newest_first(running) == ()


def test_what_still_has_a_drain_in_slurm_to_lift_is_kept() -> None:
    drain = SlurmDrain(node="r01-u01", reason="provisioner: r01-u01-1")
    ended = [maintenance(n, phase="Failed", finished_time=at(n), slurm=drain if n == 1 else None) for n in range(1, 13)]
    due = is_due(ended, NOON + timedelta(days=30))
    assert due is not None
    assert due.name == "r01-u01-2"
