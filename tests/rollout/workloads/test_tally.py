"""Which image an ended job ran on, and that each is counted once."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from provisioner.api.pools.rollout_status import JobTally
from provisioner.jobs.model.ended import EndedJob
from provisioner.rollout.workloads.failed import compile_failed_if
from provisioner.rollout.workloads.tally import NOTHING, SETTLE, Tallied, image_of, tally
from tests.rollout.workloads.ended import NOON, after, ended

DEFAULT = compile_failed_if(None)
BEGAN = Tallied(counted=NOON)
UPDATED = {"new-1": after(100), "new-2": after(1000)}
LATER = after(10_000)


def counted(*jobs: EndedJob, before: Tallied = BEGAN) -> Tallied:
    return tally(before, jobs, UPDATED, DEFAULT, LATER)


def test_jobs_are_counted_by_the_image_that_their_server_ran() -> None:
    found = counted(
        ended("1", "old-1"),
        ended("2", "old-2", succeeded=True),
        ended("3", "new-1", began=100, at=200),
        ended("4", "new-1", began=150, at=200, reason="PREEMPTED"),
    )
    assert found.old == JobTally(ended=2, failed=1)
    assert found.new == JobTally(ended=2, failed=1)


@pytest.mark.parametrize(
    ("job", "image"),
    [
        (ended("1", "old-1", "new-1", began=200, at=300), "new"),
        (ended("2", "new-1", "new-2", began=200, at=300), "new"),  # new-2 had the old image then
        (ended("3", "new-1", began=10, at=90), "old"),  # before its server was updated
        (ended("4", "old-1", "new-1", began=10, at=100), "old"),
        (ended("5", "new-1", began=99, at=300), None),
        (ended("6", "old-1", "new-1", began=10, at=300), None),
        (ended("7", "new-1", "new-2", began=200, at=2000), "new"),
        (ended(servers=()), None),
    ],
)
def test_a_job_that_spans_servers_is_new_if_one_of_them_had_the_new_image_all_the_time(
    job: EndedJob, image: str | None
) -> None:
    assert image_of(job, UPDATED) == image


def test_nothing_counts_that_ended_before_the_rollout_began() -> None:
    assert counted(ended("1", began=-60, at=-1), ended("2", began=-60, at=0)).old == NOTHING
    assert counted(ended("3", began=-60, at=1)).old == JobTally(ended=1, failed=1)


def test_a_job_waits_until_what_ended_with_it_is_known_too() -> None:
    first, second = ended("1", at=60), ended("2", at=60)
    early = tally(BEGAN, [first], {}, DEFAULT, after(60) + SETTLE - timedelta(seconds=1))
    assert early.old == NOTHING
    both = tally(early, [first, second], {}, DEFAULT, after(60) + SETTLE)
    assert both.old == JobTally(ended=2, failed=2)
    assert tally(both, [first, second], {}, DEFAULT, after(3600)).old == both.old


def test_looked_at_whenever_each_job_is_counted_once() -> None:
    seeded = random.Random(1)
    jobs = [ended(str(number), at=seeded.choice([20, 20.5, 21, 40, 41.999, 60])) for number in range(60)]
    for _ in range(30):
        now, found = 0.0, BEGAN
        while now < 60 + SETTLE.total_seconds():
            now += seeded.uniform(0, 7)
            known = [job for job in jobs if job.ended + seeded.uniform(0, 1) * SETTLE <= after(now)]
            found = tally(found, known, {}, DEFAULT, after(now))
        assert found.old.ended == len(jobs)


def test_a_job_that_two_sources_list_counts_once_and_one_that_ran_twice_counts_twice() -> None:
    assert counted(ended("1"), ended("1")).old.ended == 1
    assert counted(ended("1", at=60), ended("1", at=90)).old.ended == 2
    assert counted(ended("1", namespace="a"), ended("1", namespace="b")).old.ended == 2


def test_a_clock_that_goes_back_counts_nothing_again() -> None:
    first = counted(ended("1"))
    back = tally(first, [ended("1")], UPDATED, DEFAULT, after(30))
    assert back.old == first.old
    assert back.counted == first.counted


def test_an_expression_that_fails_on_jobs_is_told_with_the_first_of_them() -> None:
    failed_if = compile_failed_if("labels['team'] == 'vision'")
    found = tally(BEGAN, [ended("1"), ended("2"), ended("3", labels={"team": "x"})], {}, failed_if, LATER)
    assert found.old == JobTally(ended=3, failed=2)
    assert found.faults == 2
    assert found.fault is not None
    assert found.fault.startswith("SlurmJob 1: ")
    assert "team" in found.fault
