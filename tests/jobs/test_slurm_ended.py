"""Slurm's jobs that are over: which they are, how they ended, and what of them is told."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.jobs.model.ended import EndedJob
from provisioner.jobs.slurm.looks import AHEAD_SECONDS, LATE_SECONDS, as_ended, last_ended, places_of
from provisioner.jobs.slurm.objects import SlurmJob, read_job
from tests.jobs.fake_slurmrestd import FakeSlurmrestds
from tests.jobs.test_slurm_looks import NAMES, PATH, Desk
from tests.maintenance.samples import NOON

Body = dict[str, Any]
ENDED = datetime(2026, 1, 1, 11, 0, tzinfo=UTC)


def no_val(number: int, *, is_set: bool = True) -> Body:
    """A number as newer versions write it."""
    return {"set": is_set, "infinite": False, "number": number}


def newer(code: int | None = 0, signal: int = 0) -> Body:
    """How 23.11 and later write how a job ended."""
    said = {"id": no_val(signal, is_set=bool(signal)), "name": ""}
    return {"status": ["ERROR"], "return_code": no_val(code or 0, is_set=code is not None), "signal": said}


def body(*states: str, number: int = 7, nodes: str = "s-r[1-2]", ended: datetime = ENDED, **more: Any) -> Body:
    began = {"start_time": no_val(int(ended.timestamp()) - 3600), "end_time": no_val(int(ended.timestamp()))}
    said = {"name": "train", "user_name": "alice", "partition": "gpu", "qos": "normal", "exit_code": newer()}
    return {"job_id": number, "job_state": list(states), "nodes": nodes} | began | said | more


def ended(*states: str, **more: Any) -> EndedJob | None:
    job = read_job(body(*states, **more))
    return as_ended(job, "s-") if last_ended([(job, places_of(job))]) else None


def test_a_job_that_is_over_is_told_with_all_that_slurm_says_of_it() -> None:
    assert ended("COMPLETED") == EndedJob(
        kind="SlurmJob",
        key="Slurm job 7",
        name="train",
        servers=("r1", "r2"),
        began=ENDED - timedelta(hours=1),
        ended=ENDED,
        succeeded=True,
        reason="COMPLETED",
        exit_code=0,
        partition="gpu",
        qos="normal",
    )


@pytest.mark.parametrize(
    "state",
    [
        *("FAILED", "TIMEOUT", "NODE_FAIL", "CANCELLED", "PREEMPTED", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"),
    ],
)
def test_a_job_in_this_state_did_not_succeed(state: str) -> None:
    said = ended(state)
    assert said is not None
    assert (said.succeeded, said.reason) == (False, state)


@pytest.mark.parametrize(
    "states", [("RUNNING",), ("PENDING",), ("COMPLETED", "COMPLETING"), ("REVOKED",), ("ODD",), ()]
)
def test_a_job_in_this_state_is_not_over(states: tuple[str, ...]) -> None:
    assert ended(*states) is None


def test_a_job_that_was_cancelled_before_it_began_did_not_end_anywhere() -> None:
    assert ended("CANCELLED", nodes="") is None


EXITS = {
    "22.05, an error": (3 << 8, (3, None)),
    "22.05, a signal": (9, (0, 9)),
    "23.02, an error": ({"status": "ERROR", "return_code": 3}, (3, None)),
    "23.02, a signal": (
        {"status": "SIGNALED", "return_code": 0, "signal": {"signal_id": 9, "name": "Killed"}},
        (0, 9),
    ),
    "23.11 and later, an error": (newer(3), (3, None)),
    "23.11 and later, a signal": (newer(None, 9), (None, 9)),
}


@pytest.mark.parametrize("which", EXITS)
def test_an_exit_code_is_read_in_every_version(which: str) -> None:
    said, expected = EXITS[which]
    found = ended("FAILED", exit_code=said)
    assert found is not None
    assert (found.exit_code, found.signal) == expected


@pytest.mark.parametrize(
    "odd",
    [None, "0:9", [], {}, -1e300, float("nan"), {"return_code": -5, "signal": "KILL"}, newer(2**40, 2**40)],
)
def test_an_exit_code_that_is_none_is_not_known_and_hides_no_job(odd: Any) -> None:
    found = ended("FAILED", exit_code=odd)
    assert found is not None
    assert (found.exit_code, found.signal) == (None, None)


def test_a_name_of_any_length_is_told_to_a_bound_and_a_job_without_one_by_its_id() -> None:
    long, none = ended("FAILED", name="x" * 100_000), ended("FAILED", name="")
    assert long is not None
    assert none is not None
    assert (long.name, none.name) == ("x" * 256, "7")


def test_of_more_than_can_be_borne_the_last_are_told() -> None:
    jobs = [read_job(body("FAILED", number=n, ended=ENDED + timedelta(minutes=n))) for n in range(5)]
    odd = read_job(body("FAILED", number=99, nodes="r["))
    kept = last_ended([(job, places_of(job)) for job in (*jobs, odd)], most=5)
    assert [job.id for job in kept] == [4, 3]


@pytest.fixture
def slurm() -> Iterator[FakeSlurmrestds]:
    made = FakeSlurmrestds({PATH: NAMES})
    yield made
    made.close()


def told(desk: Desk, *servers: str, minutes: float = -30) -> list[str]:
    return [said.key for said in desk.workloads.ended(desk.pool, servers, NOON + timedelta(minutes=minutes))]


def over(number: int, nodes: str, minutes: float) -> Body:
    return body("COMPLETED", number=number, nodes=nodes, ended=NOON + timedelta(minutes=minutes))


def test_what_ended_is_told_from_the_look_that_all_share_and_nothing_is_asked_for_it(slurm: FakeSlurmrestds) -> None:
    slurm.jobs[PATH] = [over(1, "r[000-001]", -10), over(2, "r001", -40), over(3, "r002", -5), over(4, "r001", -3)]
    desk = Desk(slurm)
    assert told(desk, "r001") == []
    desk.look()
    desk.asked()
    assert told(desk, "r001") == ["Slurm job 4", "Slurm job 1"]
    assert told(desk, "r000", "r002", minutes=-20) == ["Slurm job 3", "Slurm job 1"]
    assert not desk.asked()


def test_who_asks_for_what_ended_keeps_the_looks_going(slurm: FakeSlurmrestds) -> None:
    desk = Desk(slurm)
    desk.look()
    for _ in range(50):
        desk.seconds += AHEAD_SECONDS
        told(desk, "r001")
        assert desk.workloads.look_ahead(slurm.url(PATH)) is not None


def test_a_slurmrestd_that_does_not_answer_takes_nothing_back(slurm: FakeSlurmrestds) -> None:
    slurm.jobs[PATH] = [over(1, "r001", -10)]
    desk = Desk(slurm)
    desk.look()
    slurm.close()
    desk.seconds += AHEAD_SECONDS + LATE_SECONDS + 1
    assert desk.look().unknown
    assert told(desk, "r001") == ["Slurm job 1"]


def test_a_slurm_whose_clock_is_ahead_ends_no_job_in_the_future(slurm: FakeSlurmrestds) -> None:
    slurm.jobs[PATH] = [over(1, "r001", 60)]
    desk = Desk(slurm)
    desk.look()
    (said,) = desk.workloads.ended(desk.pool, ["r001"], NOON - timedelta(minutes=1))
    assert said.ended == NOON


def test_a_pool_without_slurm_is_told_of_none(slurm: FakeSlurmrestds) -> None:
    from tests.jobs.pod_samples import pool

    assert list(Desk(slurm).workloads.ended(pool(), ["r001"], NOON)) == []


def test_a_job_that_ended_is_described_once_for_each_look(slurm: FakeSlurmrestds) -> None:
    slurm.jobs[PATH] = [over(1, "r[000-099]", -10)]
    desk = Desk(slurm)
    desk.look()
    since = NOON - timedelta(minutes=30)
    (first,), (second,) = (tuple(desk.workloads.ended(desk.pool, [name], since)) for name in ("r001", "r002"))
    assert first is second


def test_a_job_is_read_with_as_little_as_there_is() -> None:
    assert read_job({}) == SlurmJob(0, "0", "", "somebody", (), "", "", False, False, "")
