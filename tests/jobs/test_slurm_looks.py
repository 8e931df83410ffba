"""Looks at Slurm that all servers of a slurmrestd share: how many there are, how old, and what a failure says."""

from __future__ import annotations

import base64
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.api.pools.node_pool import NodePool
from provisioner.api.pools.pool_settings import JobSettings, SlurmJobs
from provisioner.jobs.slurm import rest
from provisioner.jobs.slurm.looks import AHEAD_SECONDS, ASKED_SECONDS, FAILED_SECONDS, LATE_SECONDS, WANTED_SECONDS
from provisioner.jobs.slurm.workloads import SharedSlurm, SlurmWorkloads, share_slurm
from provisioner.outbound.lanes import NeedsLane
from tests.boot import objects
from tests.jobs.fake_slurmrestd import FakeSlurmrestds
from tests.maintenance.samples import NOON

PATH = "/s1"
NAMES = [f"r{number:03}" for number in range(100)]
PATIENCE = 180


class Secrets:
    """Every Secret holds the same, but for one whose token no header can bear."""

    def get(self, _: Any, name: str, **__: Any) -> dict[str, Any]:
        data = {"username": "root", "token": "\N{SNOWMAN}" if name == "spoilt" else "very-secret"}
        return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}}


class Desk:
    """SlurmWorkloads, with a clock that a test sets."""

    def __init__(self, slurm: FakeSlurmrestds, *, in_lanes: bool = False, shared: SharedSlurm | None = None) -> None:
        self.slurm, self.seconds = slurm, 1000.0
        self.workloads = SlurmWorkloads(
            Secrets(),  # type: ignore[arg-type]
            namespace="provisioner-system",
            now=lambda: NOON + timedelta(seconds=self.seconds - 1000),
            monotonic=lambda: self.seconds,
            in_lanes=in_lanes,
            shared=shared,
        )
        settings = SlurmJobs(url=slurm.url(PATH), credentials_name="slurm")
        self.pool: NodePool = replace(
            objects.pool(), spec=replace(objects.pool().spec, jobs=JobSettings(slurm=settings))
        )

    def look(self, name: str = NAMES[0], *, fresh: bool = False) -> Any:
        return self.workloads.look(name, self.pool, fresh=fresh)

    def asked(self) -> Counter[str]:
        """How often for what, since the last time."""
        asked, self.slurm.asked[:] = Counter(what for _, what in self.slurm.asked), []
        return asked


@pytest.fixture
def slurm() -> Iterator[FakeSlurmrestds]:
    made = FakeSlurmrestds({PATH: NAMES})
    yield made
    made.close()


def test_a_hundred_servers_are_two_requests(slurm: FakeSlurmrestds) -> None:
    desk = Desk(slurm)
    for name in NAMES:
        assert desk.look(name).state == "IDLE"
    assert desk.asked() == {"GET openapi/v3": 1, "GET nodes": 1, "GET jobs": 1}


def test_a_shared_look_says_what_a_look_of_ones_own_says(slurm: FakeSlurmrestds) -> None:
    running = {"job_id": 7, "user_name": "alice", "job_state": ["RUNNING"], "nodes": "r[000-001]"}
    planned = {"job_id": 8, "user_name": "bob", "job_state": ["PENDING"], "scheduled_nodes": "r002"}
    odd = {"job_id": 9, "user_name": "eve", "job_state": ["RUNNING"], "nodes": "r[00"}
    requeued = "provisioner: requeued from r003 at 2026-01-02T12:00:00Z"
    gone = {"job_id": 10, "user_name": "carol", "job_state": ["PENDING"], "admin_comment": requeued}
    over = {"job_id": 11, "user_name": "dan", "job_state": ["COMPLETED"], "nodes": "r004"}
    slurm.jobs[PATH] = [running, planned, odd, gone, over]
    desk = Desk(slurm)
    for name in (*NAMES[:6], "r999"):
        assert desk.look(name) == desk.look(name, fresh=True)
    assert [job.name for job in desk.look("r001").jobs] == ["7"]
    assert desk.look("r005").unknown == (
        "Slurm job 9 runs on hosts that are not readable: 'r[00' has brackets without their counterpart",
    )


def test_what_was_changed_from_here_is_looked_at_anew(slurm: FakeSlurmrestds) -> None:
    desk = Desk(slurm)
    desk.look()
    desk.seconds += 1
    assert desk.workloads.close(NAMES[0], desk.pool, "provisioner: r000-1") is not None
    desk.asked()
    desk.look(NAMES[1])
    assert not desk.asked(), "another server's drain changes nothing here"
    desk.seconds += 0.1
    assert desk.look().state == "IDLE+DRAIN"
    assert desk.asked() == {"GET nodes": 1, "GET jobs": 1}


def test_an_old_view_is_none(slurm: FakeSlurmrestds) -> None:
    desk = Desk(slurm)
    desk.look()
    slurm.jobs[PATH] = [{"job_id": 7, "job_state": ["RUNNING"], "nodes": NAMES[0]}]
    desk.seconds += AHEAD_SECONDS + LATE_SECONDS + 1
    assert [job.name for job in desk.look().jobs] == ["7"]


def test_nobody_asks_ahead_but_while_somebody_wants_to_know(slurm: FakeSlurmrestds) -> None:
    desk = Desk(slurm)
    url = slurm.url(PATH)
    assert desk.workloads.look_ahead(url) is None
    desk.look()
    desk.asked()
    asked = 0
    while (rest := desk.workloads.look_ahead(url)) is not None:
        desk.seconds += rest
        asked += desk.asked()["GET jobs"]
    assert asked == WANTED_SECONDS // AHEAD_SECONDS - 1
    desk.seconds += 1000
    assert desk.workloads.look_ahead(url) is None
    assert not desk.asked()


def test_a_slurmrestd_that_takes_long_is_asked_so_much_less_often(slurm: FakeSlurmrestds) -> None:
    desk = Desk(slurm)
    slurm.before_jobs = lambda: setattr(desk, "seconds", desk.seconds + 6)
    desk.look()
    assert desk.workloads.look_ahead(slurm.url(PATH)) == 54
    desk.asked()
    desk.seconds += 54 + LATE_SECONDS - 1
    assert desk.look().state == "IDLE"
    assert not desk.asked(), "what is known is used as long as it takes to be known anew"


def test_a_slurmrestd_that_fails_is_unknown_in_the_same_words_and_asked_less_and_less(slurm: FakeSlurmrestds) -> None:
    desk = Desk(slurm)
    desk.look()
    slurm.close()
    desk.seconds += AHEAD_SECONDS + LATE_SECONDS + 1
    said: list[str] = []
    for _ in range(40):
        desk.seconds += FAILED_SECONDS + 1
        said += desk.look().unknown
    assert len(said) == 40
    remedy = "start it, or correct spec.jobs.slurm.url"
    words = f"slurmrestd at {slurm.url(PATH)} does not answer (GET nodes (v0.0.42): no connection): {remedy}"
    since = "; so since 2026-01-02T12:00:22Z, it is asked less often"
    assert Counter(said) == {words: 2, words + since: 38}
    assert desk.workloads.failure(desk.pool) == words + since


def test_a_pool_whose_token_is_unusable_holds_up_no_other_pool_of_that_slurmrestd(slurm: FakeSlurmrestds) -> None:
    desk, settings = Desk(slurm), SlurmJobs(url=slurm.url(PATH), credentials_name="spoilt")
    spoilt = replace(desk.pool, spec=replace(desk.pool.spec, jobs=JobSettings(slurm=settings)))
    for _ in range(10):
        assert desk.workloads.look(NAMES[0], spoilt, fresh=True).unknown
    assert desk.workloads.failure(spoilt) is not None
    assert desk.workloads.failure(desk.pool) is None
    assert desk.look(fresh=True).state == "IDLE"


def test_after_a_failure_the_next_answer_counts(slurm: FakeSlurmrestds) -> None:
    desk, answers = Desk(slurm), dict(slurm.nodes)
    slurm.nodes.clear()  # every request breaks
    for _ in range(5):
        assert desk.look().unknown
        desk.seconds += FAILED_SECONDS + 1
    slurm.nodes.update(answers)
    desk.seconds += 600
    assert desk.look().state == "IDLE"
    assert desk.workloads.failure(desk.pool) is None


def test_a_slurmrestd_that_drips_is_left_at_the_deadline(
    slurm: FakeSlurmrestds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "CALL_SECONDS", 3.0)
    slurm.drips.add(PATH)
    (words,) = Desk(slurm).look().unknown
    assert "(GET openapi: no whole answer within 3 s, though it sends some): start it, or correct" in words


def test_in_lanes_only_the_slurmrestds_own_thread_waits_for_it(slurm: FakeSlurmrestds) -> None:
    desk, looked = Desk(slurm, in_lanes=True), threading.Event()
    with pytest.raises(NeedsLane) as needed:
        desk.look()
    assert not slurm.asked

    def work() -> None:
        desk.look()
        looked.set()

    needed.value.submit(work)
    assert looked.wait(PATIENCE)
    assert desk.look().state == "IDLE", "what is known is told to everybody"
    for act in (
        lambda: desk.look(fresh=True),
        lambda: desk.workloads.close(NAMES[0], desk.pool, "r"),
        lambda: desk.workloads.reopen(NAMES[0], "r", desk.pool),
        lambda: desk.workloads.evict(NAMES[0], desk.pool, spare=()),
        lambda: desk.workloads.warn(NAMES[0], desk.pool, NOON),
    ):
        with pytest.raises(NeedsLane):
            act()


ASKED_ONCE = {"GET openapi/v3": 1, "GET nodes": 1, "GET jobs": 1}


@pytest.fixture
def shared() -> SharedSlurm:
    return share_slurm(lambda: NOON, lambda: 1000.0)


def in_lane(desk: Desk, name: str = NAMES[0]) -> tuple[threading.Event, list[Any]]:
    """A look in the desk's own lane; when it is done, and what it said."""
    done, said = threading.Event(), []

    def work() -> None:
        said.append(desk.look(name))
        done.set()

    with pytest.raises(NeedsLane) as needed:
        desk.look(name)
    needed.value.submit(work)
    return done, said


def test_two_who_share_their_looks_ask_a_slurmrestd_no_more_than_one(
    slurm: FakeSlurmrestds, shared: SharedSlurm
) -> None:
    first, second = Desk(slurm, shared=shared), Desk(slurm, shared=shared)
    assert first.look(NAMES[0]).state == second.look(NAMES[1]).state == "IDLE"
    assert first.asked() == ASKED_ONCE
    assert first.workloads.bulkhead is second.workloads.bulkhead


def test_who_comes_while_another_asks_waits_for_that_answer(slurm: FakeSlurmrestds, shared: SharedSlurm) -> None:
    first, second = Desk(slurm, in_lanes=True, shared=shared), Desk(slurm, in_lanes=True, shared=shared)
    asked, answer = threading.Event(), threading.Event()

    def hold() -> None:
        asked.set()
        answer.wait(PATIENCE)

    slurm.before_jobs = hold
    done, said = in_lane(first)
    assert asked.wait(PATIENCE)
    done_too, said_too = in_lane(second, NAMES[1])
    assert not done_too.wait(0.3)
    answer.set()
    assert done.wait(PATIENCE)
    assert done_too.wait(PATIENCE)
    assert said[0].state == said_too[0].state == "IDLE"
    assert first.asked() == ASKED_ONCE


def test_who_changed_a_node_while_another_asked_asks_anew(slurm: FakeSlurmrestds) -> None:
    clock = [1000.0]
    shared = share_slurm(lambda: NOON, lambda: clock[0])
    first, second = Desk(slurm, shared=shared), Desk(slurm, shared=shared)

    def drain() -> None:
        slurm.before_jobs = lambda: None
        clock[0] += 1
        assert second.workloads.close(NAMES[0], second.pool, "provisioner: r000-1") is not None
        clock[0] += 1

    slurm.before_jobs = drain
    assert first.look(NAMES[0]).state == "IDLE"
    first.asked()
    assert second.look(NAMES[0]).state == "IDLE+DRAIN"
    assert first.look(NAMES[0]).state == "IDLE+DRAIN"
    assert first.asked()["GET jobs"] == 1


def test_a_failure_counts_for_all_who_share(slurm: FakeSlurmrestds, shared: SharedSlurm) -> None:
    first, second = Desk(slurm, shared=shared), Desk(slurm, shared=shared)
    slurm.says[PATH] = (500, b"")
    assert first.look().unknown == second.look().unknown != ()
    assert sum(first.asked().values()) == 1


def test_who_would_ask_ahead_leaves_it_to_whoever_asks(slurm: FakeSlurmrestds) -> None:
    clock = [1000.0]
    shared = share_slurm(lambda: NOON, lambda: clock[0])
    first, second = Desk(slurm, shared=shared), Desk(slurm, shared=shared)
    first.look()
    first.asked()
    clock[0] += AHEAD_SECONDS
    said: list[float | None] = []
    slurm.before_jobs = lambda: said.append(second.workloads.look_ahead(slurm.url(PATH)))
    assert first.workloads.look_ahead(slurm.url(PATH)) == AHEAD_SECONDS
    assert said == [ASKED_SECONDS]
    assert second.workloads.look_ahead(slurm.url(PATH)) == AHEAD_SECONDS
    assert first.asked()["GET jobs"] == 1


def test_what_is_told_of_a_job_is_told_for_each_prefix(slurm: FakeSlurmrestds) -> None:
    slurm.jobs[PATH] = [{"job_id": 7, "job_state": ["RUNNING"], "nodes": "r[000-001]"}]
    desk = Desk(slurm)
    assert desk.look("r000").jobs is not desk.look("r001").jobs
    assert desk.look("r000").jobs[0] is desk.look("r001").jobs[0]
    (settings,) = [desk.pool.spec.jobs.slurm]
    assert settings is not None
    prefixed = JobSettings(slurm=replace(settings, node_name_prefix="r"))
    other = replace(desk.pool, spec=replace(desk.pool.spec, jobs=prefixed))
    (told,) = desk.workloads.look("000", other, fresh=False).jobs
    assert told.servers == ("000", "001")
