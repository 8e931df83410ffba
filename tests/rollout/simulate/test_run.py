"""Simulated rollouts whose outcome can be worked out by hand, and what holds for all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.pools.upgrade_strategy import Canary, Stragglers, UpgradeDeadline, UpgradeStrategy
from provisioner.rollout.simulate.figures import Delay, compare
from provisioner.rollout.simulate.policy import IdleOnly, Planner, Policy
from provisioner.rollout.simulate.run import REACTION_SECONDS, Scenario, simulate
from provisioner.rollout.simulate.setup import DAY, POLICIES, SimulationQuestion, make_scenario
from provisioner.rollout.simulate.trace import TraceJob
from tests.benchmarks.peer_policies import PEER_NAMES, DrainInOrder, Kured, policy_named
from tests.rollout.fleets import strategy

HOUR = 3600.0


def scenario(jobs: Sequence[TraceJob], servers: int, **changes: Any) -> Scenario:
    usual = {"gpus": 8, "began": HOUR, "attempt": 600.0, "parallel": servers, "longest": 30 * DAY}
    return Scenario(jobs=jobs, servers=servers, **{**usual, **changes})


def planner(**changes: Any) -> Planner:
    return Planner(strategy(**changes))


def test_idle_servers_take_as_many_rounds_as_the_cap_makes() -> None:
    for policy in (planner(max_parallel=4), IdleOnly(parallel=4)):
        found = simulate(scenario([], 10, parallel=4), policy)
        assert found.makespan == pytest.approx(3 * 600.0, abs=3 * REACTION_SECONDS)
        assert found.bound == found.reached == 3 * 600.0
        assert found.unavoidable == 10 * 8 * 600.0
        assert (found.interrupted, found.extra) == (0, 0.0)


def test_a_busy_server_follows_when_its_job_ends_and_not_before() -> None:
    found = simulate(scenario([TraceJob(0.0, 5 * HOUR, 8)], 2), planner())
    assert found.makespan == pytest.approx(4 * HOUR + 600.0, abs=2 * REACTION_SECONDS)
    assert found.bound == 4 * HOUR + 600.0
    assert found.interrupted == 0


def test_a_queued_job_does_not_take_the_place_of_one_that_ends_on_a_server_that_waits() -> None:
    jobs = [TraceJob(float(number), 2 * HOUR, 8) for number in range(40)]
    ours = simulate(scenario(jobs, 2, parallel=1), planner(max_parallel=1))
    assert ours.makespan is not None
    assert ours.makespan < 5 * HOUR
    for policy in (Kured(blocking=True), IdleOnly(parallel=1)):
        blocked = simulate(scenario(jobs, 2, parallel=1), policy)
        assert blocked.makespan is not None, policy.name
        assert blocked.makespan > 30 * HOUR, policy.name  # it closes no server, and there is always a job


def test_a_job_that_lasts_is_placed_where_no_update_waits_for_it() -> None:
    jobs = [TraceJob(0.0, 2 * HOUR, 4), TraceJob(1.5 * HOUR, 100 * HOUR, 4)]
    found = simulate(scenario(jobs, 2), planner(canary=Canary(count=1, soak_seconds=0)))
    assert found.makespan is not None
    assert found.makespan < 2 * HOUR
    made = scenario(jobs, 2)
    rules = strategy(canary=Canary(count=1, soak_seconds=0))
    unsteered = simulate(made, POLICIES["provisioner-unsteered"](made, rules))
    assert unsteered.makespan is not None
    assert unsteered.makespan > 99 * HOUR


def test_closing_servers_in_order_idles_what_is_free_until_the_last_job_ends() -> None:
    jobs = [TraceJob(0.0, 5 * HOUR, 1)]
    found = simulate(scenario(jobs, 1), policy_of_one())
    assert found.makespan == pytest.approx(4 * HOUR + 600.0, abs=4 * REACTION_SECONDS)
    assert found.closed_idle == pytest.approx(4 * HOUR * 7, abs=16 * REACTION_SECONDS)
    assert found.extra == 0.0, "nobody wanted these GPUs"
    wanted = simulate(scenario([*jobs, *(TraceJob(HOUR + 60.0, HOUR, 1) for _ in range(3))], 1), policy_of_one())
    assert wanted.extra == pytest.approx(4 * HOUR * 3, rel=0.02)
    assert simulate(scenario(jobs, 1), planner()).closed_idle <= 8 * REACTION_SECONDS


def policy_of_one() -> DrainInOrder:
    return DrainInOrder("in-order", parallel=1, idle_first=False)


def test_a_straggler_is_closed_so_that_the_rollout_ends_where_jobs_never_stop_coming() -> None:
    # Jobs overlap: the server is never empty by itself.
    jobs = [TraceJob(number * HOUR, 1.5 * HOUR, 4) for number in range(1, 200)]
    open_ = simulate(scenario(jobs, 1, began=5 * HOUR, longest=2 * DAY), planner())
    assert open_.makespan is None
    closing = planner(stragglers=Stragglers(after_seconds=3600, max_closed=1))
    closed = simulate(scenario(jobs, 1, began=5 * HOUR, longest=2 * DAY), closing)
    assert closed.makespan is not None
    assert closed.makespan < 4 * HOUR
    assert closed.interrupted == 0
    assert 0 < closed.closed_idle <= 8 * 2 * HOUR


def test_at_a_deadline_a_job_is_ended_and_starts_again_where_it_is_not_ended_twice() -> None:
    jobs = [TraceJob(0.0, 50 * HOUR, 8), TraceJob(0.0, 2 * HOUR, 8)]
    rules = planner(deadline=UpgradeDeadline(after_seconds=int(3 * HOUR)), canary=Canary(count=1, soak_seconds=0))
    found = simulate(scenario(jobs, 2), rules)
    assert found.interrupted == 1
    assert found.lost == pytest.approx(4 * HOUR * 8)
    assert found.makespan == pytest.approx(3 * HOUR + 600.0, abs=2 * REACTION_SECONDS)
    patient = planner(deadline=UpgradeDeadline(after_seconds=0, minimum_run_seconds=int(60 * HOUR)))
    assert simulate(scenario(jobs, 2), patient).interrupted == 0, "it had not run for its least time when it ended"


def test_a_gang_is_ended_once_and_all_its_servers_are_updated_then() -> None:
    jobs = [TraceJob(0.0, 50 * HOUR, 32)]
    rules = planner(deadline=UpgradeDeadline(after_seconds=0), max_parallel=4)
    found = simulate(scenario(jobs, 4), rules)
    assert found.interrupted == 1
    assert found.makespan == pytest.approx(900.0 + 600.0, abs=2 * REACTION_SECONDS)
    narrow = simulate(scenario(jobs, 4, parallel=3), planner(deadline=UpgradeDeadline(after_seconds=0), max_parallel=3))
    assert narrow.interrupted == 0
    assert narrow.makespan is not None
    assert narrow.makespan > 49 * HOUR


def test_a_server_that_empties_before_its_deadline_is_updated_then() -> None:
    jobs = [TraceJob(0.0, HOUR + 300.0, 8)]
    found = simulate(scenario(jobs, 1), planner(deadline=UpgradeDeadline(after_seconds=0)))
    assert found.interrupted == 0
    assert found.makespan == pytest.approx(300.0 + 600.0, abs=2 * REACTION_SECONDS)


def test_idle_first_is_done_with_the_idle_before_it_waits_for_the_busy() -> None:
    jobs = [TraceJob(0.0, 5 * HOUR, 8)]
    in_order = simulate(scenario(jobs, 2, parallel=1), DrainInOrder("a", parallel=1, idle_first=False))
    idle_first = simulate(scenario(jobs, 2, parallel=1), DrainInOrder("b", parallel=1, idle_first=True))
    assert in_order.samples[-2].time > 4 * HOUR
    assert next(s.time for s in idle_first.samples if s.updated == 1) < HOUR


def test_kured_without_a_selector_interrupts_what_runs_and_it_starts_again() -> None:
    found = simulate(scenario([TraceJob(0.0, 50 * HOUR, 8)], 1), Kured(blocking=False))
    assert found.interrupted == 1
    assert found.lost >= 8 * HOUR
    assert found.makespan is not None
    assert found.makespan < 2 * HOUR


@pytest.mark.timeout(600)
@pytest.mark.parametrize("servers", [7, 1700])
def test_kured_goes_on_to_the_next_moment_however_its_moments_are_rounded(servers: int) -> None:
    """Whose daemons ask at fractions of a second, late in a long trace."""
    found = simulate(scenario([], servers, began=45 * DAY), Kured(blocking=True))
    assert found.makespan is not None
    assert found.makespan >= servers * 600 - 1


def test_a_rollout_that_does_not_end_is_given_up_and_says_what_is_left() -> None:
    found = simulate(scenario([TraceJob(0.0, 1e9, 8)], 2, longest=DAY), planner())
    assert found.makespan is None
    assert found.left == 1
    assert found.samples[-1].updated == 1


def test_how_much_later_jobs_start_is_counted_against_a_cluster_without_a_rollout() -> None:
    jobs = [TraceJob(HOUR + 10.0, HOUR, 8)]
    [found] = compare(scenario(jobs, 1), [planner()])
    assert found.delay.mean == found.delay.worst == pytest.approx(590.0, abs=2 * REACTION_SECONDS)
    assert found.not_started == 0


def test_a_job_that_waits_when_the_rollout_is_over_is_counted_when_it_starts() -> None:
    jobs = [TraceJob(0.0, 3 * HOUR, 8), TraceJob(2 * HOUR, HOUR, 8), TraceJob(2.5 * HOUR, HOUR, 8)]
    [found] = compare(scenario(jobs, 1), [planner()])
    assert found.outcome.makespan == pytest.approx(2 * HOUR + 600, abs=4 * REACTION_SECONDS)
    assert found.not_started == 0
    assert found.delay.mean == pytest.approx(600, abs=4 * REACTION_SECONDS)


def test_what_another_placement_does_to_jobs_is_measured_on_a_cluster_without_a_rollout() -> None:
    # All servers have 3 GPUs free when the long job with 3 is submitted. If it takes the first one, where the other job
    # is long, too, the last three have a whole server each when those of the others end; else one waits for it.
    jobs = [TraceJob(0.0, 20 * HOUR, 5), *(TraceJob(0.0, 2 * HOUR, 5) for _ in range(3))]
    jobs += [TraceJob(1.5 * HOUR, 10 * HOUR, 3), *(TraceJob(1.6 * HOUR, 50 * HOUR, 8) for _ in range(3))]
    [found] = compare(scenario(jobs, 4), [IdleOnly(parallel=1)])
    assert found.by_chance == Delay(9.5 * HOUR / 4, 9.5 * HOUR)
    [before] = compare(scenario(jobs, 4, began=1.55 * HOUR), [IdleOnly(parallel=1)])
    assert before.by_chance == Delay(0.0, 0.0), "jobs are placed alike until the rollout begins"


def patient_policies(parallel: int) -> list[Policy]:
    rules = strategy(max_parallel=parallel)
    return [
        Planner(rules),
        Planner(strategy(max_parallel=parallel, stragglers=Stragglers(after_seconds=0))),
        Planner(strategy(max_parallel=parallel, deadline=UpgradeDeadline(after_seconds=10**6))),
        DrainInOrder("idle-first", parallel=parallel, idle_first=True),
        DrainInOrder("in-order", parallel=parallel, idle_first=False),
        IdleOnly(parallel=parallel),
        Kured(blocking=True),
    ]


def random_jobs(seed: int, count: int = 500) -> list[TraceJob]:
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        duration = chance.expovariate(1 / (4 * HOUR)) + 1
        made.append(TraceJob(chance.uniform(0, 3 * DAY), duration, chance.choice((1, 1, 4, 8, 16))))
    return sorted(made, key=lambda job: job.submitted)


@pytest.mark.parametrize("seed", range(4))
def test_none_that_waits_for_jobs_interrupts_one_or_is_faster_than_the_bound(seed: int) -> None:
    made = scenario(random_jobs(seed), 8, parallel=2, began=DAY)
    for policy, again in zip(patient_policies(2), patient_policies(2), strict=True):
        found = simulate(made, policy)
        assert found.interrupted == 0, policy.name
        assert found.makespan is not None, policy.name
        assert found.makespan >= found.bound - 1e-6, policy.name
        assert found.makespan >= found.reached - 1e-6, policy.name
        assert found.unavoidable == 8 * 8 * made.attempt
        assert simulate(made, again) == found, "the same again"


def question(**changes: Any) -> SimulationQuestion:
    usual: dict[str, Any] = {
        "servers": 4,
        "gpus": 8,
        "load": 0.5,
        "begins": 10.0,
        "longest": 20.0,
        "attempt": 600.0,
        "strategy": UpgradeStrategy(),
        "seed": 1,
    }
    return SimulationQuestion(**{**usual, **changes})


def trace() -> list[TraceJob]:
    return [TraceJob(number * HOUR, 8 * HOUR, 2) for number in range(24 * 30)]


def test_a_trace_is_scaled_to_the_load_that_was_asked_for() -> None:
    made = make_scenario(trace(), question(load=0.5))
    day = [job for job in made.jobs if 10 * DAY <= job.submitted < 11 * DAY]
    assert sum(job.duration * job.gpus for job in day) / DAY == pytest.approx(0.5 * 32, rel=0.25)
    assert made.parallel == 1


def test_a_time_at_which_nothing_runs_cannot_be_asked_about() -> None:
    with pytest.raises(NeedsHuman, match="no job of the trace that fits runs around day 90"):
        make_scenario(trace(), question(begins=90.0))
    with pytest.raises(NeedsHuman, match="allow at least 1"):
        make_scenario(trace(), question(strategy=UpgradeStrategy(max_parallel=0)))


@pytest.mark.parametrize("name", [*POLICIES, *PEER_NAMES])
def test_each_policy_can_be_asked_for_by_its_name(name: str) -> None:
    made = make_scenario(trace(), question())
    rules = strategy(max_parallel=made.parallel)
    [found] = compare(made, [policy_named(name, made, rules)])
    assert (found.outcome.interrupted == 0) == (name != "kured")
    # Each server always runs a job: who only looks whether one is idle now and then never finds it so.
    assert (found.outcome.makespan is None) == (name in ("kured-blocking", "idle-only", "provisioner-unsteered"))
