"""What a rollout would do: the planner asked with the clock set forward."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.pools.upgrade_strategy import Canary, MaintenanceWindow, UpgradeDeadline, Wave
from provisioner.rollout.completion import lower_bound
from provisioner.rollout.fleet import Member
from provisioner.rollout.forecast import MAX_JOB_ENDS, Forecast, make_forecast
from provisioner.rollout.wait import MemberWait
from tests.rollout.fleets import NOON, after, busy, fleet, idle, strategy, updated

ATTEMPT = 1 / 6
"""Hours that a server is out of use."""


def begins(found: Forecast) -> dict[str, float]:
    """In hours after noon."""
    return {move.name: round((move.begins - after(0)) / 3600, 3) for move in found.moves}


def test_idle_servers_go_now_and_the_others_when_their_jobs_end() -> None:
    found = make_forecast(fleet(busy("later", "a", ends=5), idle("idle"), busy("soon", "b", ends=2)), strategy(), NOON)
    assert begins(found) == {"idle": 0, "soon": 2, "later": 5}
    assert [move.jobs for move in found.moves] == [(), ("b",), ("a",)]
    assert found.completed == NOON + timedelta(hours=5, minutes=10)
    assert found.stays == {}


def test_canary_soak_and_waves_follow_each_other() -> None:
    rules = strategy(canary=Canary(count=1, soak_seconds=3600), waves=(Wave(share=50, soak_seconds=7200),))
    found = make_forecast(fleet(*(idle(f"s{n}") for n in range(1, 5))), rules, NOON)
    soaked = ATTEMPT + 1
    assert begins(found) == {"s1": 0, "s2": round(soaked, 3), "s3": round(soaked + ATTEMPT + 2, 3)} | {
        "s4": round(soaked + ATTEMPT + 2, 3)
    }
    assert [(part.stage, part.servers) for part in found.parts] == [("Canary", 1), ("Wave", 1), ("Rest", 2)]
    assert found.completed == NOON + timedelta(hours=3, minutes=30)


def test_no_more_go_at_once_than_the_cap_allows() -> None:
    found = make_forecast(fleet(*(idle(f"s{n}") for n in range(5))), strategy(max_parallel=2), NOON)
    assert list(begins(found).values()) == [0, 0, round(ATTEMPT, 3), round(ATTEMPT, 3), round(2 * ATTEMPT, 3)]


def test_a_job_of_which_nobody_knows_the_end_keeps_its_server_and_the_completion_is_not_known() -> None:
    found = make_forecast(fleet(idle("idle"), busy("endless", "a")), strategy(), NOON)
    assert begins(found) == {"idle": 0}
    assert {name: wait.reason for name, wait in found.stays.items()} == {"endless": "Job"}
    assert found.completed is None
    assert not found.is_cut


def test_at_a_deadline_jobs_are_ended_after_their_warning_and_that_is_said_of_the_move() -> None:
    rules = strategy(deadline=UpgradeDeadline(after_seconds=7200))
    found = make_forecast(fleet(busy("endless", "a", may_end=2)), rules, NOON)
    (move,) = found.moves
    assert (move.ended, move.jobs, begins(found)["endless"]) == (True, ("a",), 2)


def test_servers_that_cannot_go_are_told_with_their_reasons() -> None:
    members = (
        updated("done"),
        idle("held", excluded=MemberWait("Held", "it is held by a person")),
        Member(name="down", state="Down"),
        Member(name="absent", state="Absent"),
        Member(name="going", state="Updating"),
        idle("idle"),
    )
    found = make_forecast(fleet(*members), strategy(), NOON)
    assert begins(found) == {"idle": 0}
    assert {name: wait.reason for name, wait in found.stays.items()} == {
        "held": "Held",
        "down": "Down",
        "absent": "Absent",
    }
    assert found.completed == NOON + timedelta(minutes=10), "what is held or out of use is not waited for"


def test_nothing_goes_on_in_a_rollout_that_is_paused_or_halted() -> None:
    for found in (
        make_forecast(fleet(idle("a")), strategy(paused=True), NOON),
        make_forecast(fleet(idle("a"), halted="there is no such Image"), strategy(), NOON),
    ):
        assert found.moves == ()
        assert found.first.stopped is not None
        assert found.completed is None


def test_a_window_is_waited_for_though_not_for_years() -> None:
    nights = (MaintenanceWindow(schedule="0 22 * * *", duration_seconds=3600),)
    assert begins(make_forecast(fleet(idle("a")), strategy(windows=nights), NOON)) == {"a": 10}
    leap_years = (MaintenanceWindow(schedule="0 0 29 2 *", duration_seconds=3600),)
    found = make_forecast(fleet(idle("a")), strategy(windows=leap_years), NOON)
    assert (found.moves, found.completed, found.is_cut) == ((), None, True)


def test_windows_of_a_pool_whose_jobs_never_end_are_not_looked_at_for_ever() -> None:
    nights = (MaintenanceWindow(schedule="0 22 * * *", duration_seconds=3600),)
    found = make_forecast(fleet(busy("a", "endless")), strategy(windows=nights), NOON)
    assert found.moves == ()
    assert not found.is_cut


@given(
    ends=st.lists(st.one_of(st.none(), st.integers(0, 100).map(float)), min_size=1, max_size=20),
    parallel=st.integers(1, 4),
)
def test_everybody_goes_once_and_the_last_one_no_later_than_need_be(ends: list[float | None], parallel: int) -> None:
    members = [idle(f"s{n}") if end is None else busy(f"s{n}", f"job-{n}", ends=end) for n, end in enumerate(ends)]
    pool, rules = fleet(*members), strategy(max_parallel=parallel)
    found = make_forecast(pool, rules, NOON)
    assert sorted(move.name for move in found.moves) == sorted(member.name for member in members)
    releases = [0.0 if end is None else end * 3600 for end in ends]
    least = timedelta(seconds=lower_bound(releases, parallel, 600))
    rounding = timedelta(seconds=max(60, 100 * 3600 / MAX_JOB_ENDS))
    assert found.completed is not None
    assert NOON + least <= found.completed <= NOON + least + rounding
