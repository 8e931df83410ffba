"""Which servers are updated now, and why the others wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.pools.upgrade_strategy import (
    Canary,
    DomainCap,
    MaintenanceWindow,
    Stragglers,
    UpgradeStrategy,
    Wave,
)
from provisioner.rollout.fleet import Member, Occupancy, PoolSnapshot
from provisioner.rollout.plan import Plan, plan
from provisioner.rollout.wait import MemberWait
from provisioner.rules.amounts import resolve_amount
from tests.rollout.fleets import NOON, after, busy, fleet, idle, strategy, updated


@pytest.mark.parametrize(
    ("amount", "servers", "expected"),
    [(0, 100, 0), (3, 100, 3), ("0%", 100, 0), ("10%", 1, 1), ("10%", 10, 1), ("10%", 11, 2), ("100%", 7, 7)],
)
def test_a_share_of_servers_is_rounded_up_and_0_stays_0(amount: int | str, servers: int, expected: int) -> None:
    assert resolve_amount(amount, servers) == expected


def reasons(found: Plan) -> dict[str, str]:
    return {name: wait.reason for name, wait in found.waits.items()}


def test_idle_servers_are_updated_at_once_and_those_that_run_jobs_wait_for_them() -> None:
    found = plan(fleet(idle("a"), busy("b", "job-1"), idle("c")), strategy(), NOON)
    assert found.claims == ("a", "c")
    assert reasons(found) == {"b": "Job"}
    assert found.wait_counts == {"Job": 1}
    assert found.waits["b"].jobs == ("job-1",)
    several = plan(fleet(busy("b", "job-1", "job-2", "job-3")), strategy(), NOON)
    assert several.waits["b"].words == "runs job-1, and 2 more"


def test_a_server_that_its_job_fills_is_closed_so_that_none_takes_its_place() -> None:
    found = plan(fleet(busy("full", "job-1"), idle("idle")), strategy(), NOON)
    assert found.closed == {"full"}
    assert found.steered == frozenset()


def quarter_left(*members: Member, done: int = 12, free: int = 12) -> PoolSnapshot:
    """With the updated servers beside them of which these may be the last."""
    return fleet(*members, *(updated(f"done-{number}") for number in range(done)), free=free)


def test_a_server_that_jobs_fill_in_part_stays_open_and_jobs_are_steered_away_from_the_last_ones() -> None:
    parts = [busy(f"part-{number}", f"job-{number}", free=0.5, began=-5) for number in range(4)]
    found = plan(quarter_left(*parts), strategy(), NOON)
    assert found.closed == frozenset()
    assert found.steered == {part.name for part in parts}
    assert plan(quarter_left(*parts, done=11), strategy(), NOON).steered == {part.name for part in parts}
    assert plan(quarter_left(*parts, done=8), strategy(), NOON).steered == frozenset(), "most empty without help"


@pytest.mark.parametrize(("free", "steered"), [(0, 1), (1, 1), (2, 1), (3, 2), (12, 3)])
def test_servers_that_are_free_as_a_whole_are_kept_for_wide_jobs(free: int, steered: int) -> None:
    parts = [busy(f"part-{number}", f"job-{number}", free=0.5, began=-number) for number in range(3)]
    found = plan(quarter_left(*parts, done=17, free=free), strategy(), NOON)
    soonest = {f"part-{number}" for number in range(steered)}
    assert found.steered == soonest


def test_jobs_are_steered_first_from_where_they_are_known_to_end_soonest() -> None:
    parts = [
        busy("young", "job-1", free=0.5, began=-2),
        busy("ends", "job-2", free=0.5, began=-90, ends=1),
        Member(name="unknown", state="Outdated", runs=Occupancy(jobs=("job-3", "job-4"), free=0.5)),
    ]
    steered = [plan(quarter_left(*parts, done=17, free=free), strategy(), NOON).steered for free in (2, 3, 4)]
    assert steered == [{"ends"}, {"ends", "young"}, {"ends", "young", "unknown"}]


def test_jobs_are_steered_away_from_idle_servers_that_wait_for_their_turn() -> None:
    found = plan(fleet(idle("a"), idle("b"), idle("c")), strategy(max_parallel=1), NOON)
    assert (found.claims, found.steered) == (("a",), {"b", "c"})


def test_steering_can_be_switched_off() -> None:
    rest = [busy("part", "job-1", free=0.5), idle("a"), idle("b")]
    assert plan(quarter_left(*rest), strategy(max_parallel=1), NOON).steered == {"part", "b"}
    assert plan(quarter_left(*rest), strategy(max_parallel=1, steer_jobs=False), NOON).steered == frozenset()


def test_stragglers_are_closed_after_a_while_so_many_at_once_and_stay_closed_until_they_are_empty() -> None:
    rules = strategy(stragglers=Stragglers(after_seconds=7 * 86_400, max_closed=1))
    old = busy("old", "job-1", free=0.5, began=-100)
    young = busy("young", "job-2", free=0.5, began=-1)
    early = plan(fleet(old, young), rules, NOON)
    assert early.closed == frozenset()
    assert early.again == NOON + timedelta(days=7)
    late = NOON + timedelta(days=7)
    found = plan(fleet(old, young), rules, late)
    assert found.closed == {"young"}, "the job that has run for the shorter time is likely to be over sooner"
    assert found.steered == {"old"}
    assert plan(fleet(replace(old, closed=True), young), rules, late).closed == {"old"}
    full = busy("full", "job-3")
    assert plan(fleet(old, young, full), rules, late).closed == {"young", "full"}, "one that is full costs nothing"


def test_of_stragglers_those_of_whose_jobs_nothing_is_known_are_closed_last() -> None:
    rules = strategy(stragglers=Stragglers(after_seconds=0, max_closed=1))
    unknown = Member(name="unknown", state="Outdated", runs=Occupancy(jobs=("job-1", "job-2"), free=0.5))
    assert plan(fleet(unknown, busy("known", "job-3", free=0.5, began=-999)), rules, NOON).closed == {"known"}
    assert plan(fleet(unknown), rules, NOON).closed == {"unknown"}


@pytest.mark.parametrize(
    ("out", "changes", "reason"),
    [("Failed", {"max_parallel": 1, "max_failures": 5}, "Parallel"), ("Down", {"max_unavailable": 1}, "Unavailable")],
)
def test_nothing_is_kept_free_where_those_that_are_out_of_use_let_no_other_go(
    out: str, changes: dict[str, object], reason: str
) -> None:
    gone = Member(name="gone", state=out)  # type: ignore[arg-type]
    found = plan(fleet(gone, busy("full", "job-1"), busy("part", "job-2", free=0.5)), strategy(**changes), NOON)
    assert found.closed == found.steered == frozenset()
    assert reasons(found) == {"gone": out, "full": reason, "part": reason}
    assert found.expected is None


def test_a_gang_waits_as_one_and_says_how_wide_it_is() -> None:
    found = plan(fleet(busy("a", "gang"), busy("b", "gang")), strategy(), NOON)
    assert found.claims == ()
    assert found.closed == {"a", "b"}
    assert found.waits["a"].words == "runs gang, which spans 2 servers"


def test_the_canary_goes_first_and_the_others_wait_for_it() -> None:
    rules = strategy(canary=Canary(count=1, soak_seconds=600))
    found = plan(fleet(busy("a", "job-1"), idle("b"), idle("c")), rules, NOON)
    assert found.claims == ("b",)
    assert reasons(found) == {"a": "Canary", "c": "Canary"}
    assert found.closed == found.steered == frozenset()


def test_only_what_the_pool_chose_is_the_canary() -> None:
    rules = strategy(canary=Canary(count=1, soak_seconds=600))
    found = plan(fleet(idle("a", canary=False), busy("b", "job-1", canary=False), idle("c")), rules, NOON)
    assert found.claims == ("c",)
    assert reasons(found) == {"a": "Canary", "b": "Canary"}


def test_while_no_server_could_be_the_canary_no_other_one_follows() -> None:
    rules = strategy(canary=Canary(count=1, soak_seconds=600))
    found = plan(fleet(idle("a", canary=False), Member(name="b", state="Down")), rules, NOON)
    assert (found.claims, found.stage.name, found.stage.passed) == ((), "Canary", 0)
    assert "no server is in use that could be the first" in found.waits["a"].words


def test_a_canary_whose_soak_is_over_lets_nobody_follow_while_its_jobs_or_a_person_stop_it() -> None:
    rules = strategy(canary=Canary(count=1, soak_seconds=600))
    servers = updated("a", minutes=60), idle("b")
    by_jobs = plan(fleet(*servers, gate="2 more must end"), rules, NOON)
    assert (by_jobs.claims, by_jobs.stage.passed, reasons(by_jobs)) == ((), 0, {"b": "Soak"})
    assert plan(fleet(*servers), replace(rules, paused=True), NOON).stage.passed == 0, "nor is its image released"
    closed = MaintenanceWindow(schedule="0 22 * * SAT", duration_seconds=3600)
    assert plan(fleet(*servers), replace(rules, windows=(closed,)), NOON).stage.passed == 1


def test_while_every_server_is_busy_the_first_that_empties_becomes_the_canary() -> None:
    found = plan(fleet(busy("a", "job-1"), busy("b", "job-2")), strategy(canary=Canary(count=1)), NOON)
    assert found.closed == {"a", "b"}
    assert reasons(found) == {"a": "Job", "b": "Job"}


def test_nothing_follows_the_canary_until_it_was_in_use_for_its_soak() -> None:
    rules = strategy(canary=Canary(count=1, soak_seconds=600))
    young = plan(fleet(updated("a", minutes=9), idle("b")), rules, NOON)
    assert young.claims == ()
    assert reasons(young) == {"b": "Soak"}
    assert young.again == NOON + timedelta(minutes=1)
    assert plan(fleet(updated("a", minutes=10), idle("b")), rules, NOON).claims == ("b",)


def test_a_canary_that_is_out_of_use_for_a_moment_keeps_its_place() -> None:
    rules = strategy(canary=Canary(count=1, soak_seconds=600), max_failures=5)
    flapping = Member(name="a", state="Down", has_image=True)
    found = plan(fleet(flapping, idle("b"), idle("c")), rules, NOON)
    assert found.claims == (), "else an image whose servers come and go would walk through the pool"
    assert reasons(found) == {"a": "Down", "b": "Canary", "c": "Canary"}
    broken_before = Member(name="a", state="Down")
    assert plan(fleet(broken_before, idle("b"), idle("c")), rules, NOON).claims == ("b",)


def test_an_image_that_passed_before_needs_no_canary() -> None:
    rules = strategy(canary=Canary(count=1, soak_seconds=600))
    assert plan(fleet(idle("a"), idle("b"), passed=1), rules, NOON).claims == ("a", "b")


def test_a_stage_that_is_over_is_not_begun_again_when_one_of_its_servers_breaks() -> None:
    rules = strategy(waves=(Wave(share=33, soak_seconds=3600),))
    soaked = [updated("a", minutes=90), updated("b", minutes=90), *(idle(f"s{number}") for number in range(4))]
    found = plan(fleet(*soaked), rules, NOON)
    assert len(found.claims) == 4
    assert found.stage.passed == 2
    broken = [Member(name="a", state="Down"), *soaked[1:]]
    assert plan(fleet(*broken), rules, NOON).claims != found.claims
    assert plan(fleet(*broken, passed=2), rules, NOON).claims == found.claims


def test_a_server_that_failed_is_no_part_of_a_stage_which_goes_on_where_more_may_fail() -> None:
    failed = Member(name="failed", state="Failed")
    rules = strategy(canary=Canary(count=1, soak_seconds=0), waves=(Wave(share=50),), max_failures=5)
    assert plan(fleet(failed, idle("a"), idle("b"), idle("c")), rules, NOON).claims == ("a",)
    found = plan(fleet(failed, updated("a"), idle("b"), idle("c")), rules, NOON)
    assert found.claims == ("b",)


def test_a_server_that_is_updated_nobody_knows_since_when_is_so_since_now() -> None:
    rules = strategy(canary=Canary(count=1, soak_seconds=600))
    found = plan(fleet(Member(name="a", state="Updated"), idle("b")), rules, NOON)
    assert reasons(found) == {"b": "Soak"}
    assert found.again == NOON + timedelta(minutes=10)


def test_waves_let_in_more_servers_each_after_the_soak_of_the_one_before() -> None:
    rules = strategy(waves=(Wave(share=25, soak_seconds=60), Wave(share=50)))
    servers = [idle(f"s{number}") for number in range(8)]
    assert plan(fleet(*servers), rules, NOON).claims == ("s0", "s1")
    two = [updated("s0"), updated("s1"), *servers[2:]]
    assert reasons(plan(fleet(*two), rules, NOON))["s2"] == "Soak"
    assert plan(fleet(*two), rules, NOON + timedelta(minutes=1)).claims == ("s2", "s3")
    four = [*two[:2], updated("s2"), updated("s3"), *servers[4:]]
    assert plan(fleet(*four), rules, NOON + timedelta(minutes=1)).claims == ("s4", "s5", "s6", "s7")


def test_as_many_are_on_their_way_at_once_as_may_be() -> None:
    going = Member(name="going", state="Updating")
    found = plan(fleet(going, idle("a"), idle("b"), idle("c")), strategy(max_parallel=2), NOON)
    assert found.claims == ("a",)
    assert reasons(found) == {"b": "Parallel", "c": "Parallel"}


def test_a_server_that_failed_keeps_its_place_until_somebody_decides() -> None:
    failed = Member(name="failed", state="Failed")
    found = plan(fleet(failed, idle("a")), strategy(max_parallel=1, max_failures=5), NOON)
    assert found.claims == ()
    assert reasons(found) == {"failed": "Failed", "a": "Parallel"}
    assert found.waits["a"].words.startswith("0 servers are on their way to the image, 1 failed")


def test_a_broken_server_is_not_ours_but_bounds_the_sum() -> None:
    broken = Member(name="broken", state="Down")
    assert plan(fleet(broken, idle("a"), idle("b")), strategy(max_parallel=1), NOON).claims == ("a",)
    found = plan(fleet(broken, idle("a"), idle("b")), strategy(max_unavailable=1), NOON)
    assert found.claims == ()
    assert reasons(found) == {"broken": "Down", "a": "Unavailable", "b": "Unavailable"}


def test_a_failure_domain_that_has_its_share_out_of_use_waits_and_the_others_go_on() -> None:
    rules = strategy(domains=(DomainCap(key="rack", max_unavailable=1),))
    members = [
        Member(name="a1", state="Down", domains=("a",)),
        idle("a2", domains=("a",)),
        idle("b1", domains=("b",)),
        idle("b2", domains=("b",)),
        idle("nowhere", domains=(None,)),
    ]
    found = plan(fleet(*members), rules, NOON)
    assert set(found.claims) == {"b1", "nowhere"}
    assert reasons(found) == {"a1": "Down", "a2": "Domain", "b2": "Domain"}
    assert "rack a" in found.waits["a2"].words


def test_after_too_many_failures_nothing_goes_on() -> None:
    failed = Member(name="failed", state="Failed")
    found = plan(fleet(failed, idle("a"), busy("b", "job-1")), strategy(max_failures=1), NOON)
    assert found.claims == ()
    assert found.closed == found.steered == frozenset()
    assert reasons(found) == {"failed": "Failed", "a": "Failures", "b": "Failures"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"paused": True}, "Paused"), ({"max_unavailable": 0}, "Paused"), ({"max_parallel": "0%"}, "Paused")],
)
def test_a_rollout_that_is_paused_does_nothing_and_keeps_nothing_free(changes: dict[str, object], reason: str) -> None:
    found = plan(fleet(idle("a"), busy("b", "job-1")), strategy(**changes), NOON)
    assert (found.claims, found.closed, found.steered) == ((), frozenset(), frozenset())
    assert set(reasons(found).values()) == {reason}


def test_what_halts_the_pool_is_what_each_server_waits_for() -> None:
    found = plan(fleet(idle("a"), halted="Image gpu-2 is not there"), strategy(), NOON)
    assert found.waits["a"].words == "Image gpu-2 is not there"


def test_outside_its_windows_it_waits_and_says_when_the_next_one_opens() -> None:
    window = MaintenanceWindow(schedule="0 22 * * *", duration_seconds=3600, time_zone="UTC")
    found = plan(fleet(idle("a")), strategy(windows=(window,)), NOON)
    assert reasons(found) == {"a": "Window"}
    assert found.again == NOON.replace(hour=22)
    night = NOON.replace(hour=22, minute=30)
    found = plan(fleet(idle("a")), strategy(windows=(window,)), night)
    assert found.claims == ("a",)
    assert found.again == NOON.replace(hour=23)


def test_a_server_that_a_person_excludes_is_left_alone_and_told() -> None:
    found = plan(fleet(idle("a", excluded=MemberWait("Held", "by alice")), idle("b")), strategy(), NOON)
    assert found.claims == ("b",)
    assert found.waits["a"] == MemberWait("Held", "by alice")


def test_when_it_is_complete_is_told_where_every_end_is_known() -> None:
    members = fleet(idle("a"), busy("b", "job-1", ends=2), attempt=timedelta(minutes=10))
    assert plan(members, strategy(), NOON).expected == NOON + timedelta(hours=2, minutes=10)
    assert plan(fleet(idle("a"), busy("b", "job-2")), strategy(), NOON).expected is None
    assert plan(fleet(idle("a"), idle("b")), strategy(), NOON).expected == NOON + timedelta(minutes=10), "all at once"
    held = idle("c", excluded=MemberWait("Held", "by alice"))
    assert plan(fleet(idle("a"), held), strategy(), NOON).expected == NOON + timedelta(minutes=10), "of the rest"
    window = MaintenanceWindow(schedule="* * * * *", duration_seconds=60)
    assert plan(members, strategy(windows=(window,)), NOON).expected is None
    first = fleet(busy("a", "job-1", ends=1), busy("b", "job-2", ends=2))
    assert plan(first, strategy(canary=Canary(count=1)), NOON).expected is None, "its canary comes first"
    assert plan(first, strategy(), NOON).expected is not None


def test_when_it_is_complete_counts_the_places_that_those_out_of_use_leave() -> None:
    down = Member(name="down", state="Down")
    found = plan(fleet(down, idle("a"), idle("b")), strategy(max_unavailable=2), NOON)
    assert found.claims == ("a",)
    assert found.expected == NOON + 2 * timedelta(minutes=10)


STATES = st.sampled_from(["Updated", "Updating", "Failed", "Outdated", "Outdated", "Outdated", "Down", "Absent"])
RUNS = st.builds(
    Occupancy,
    jobs=st.sampled_from([("j1",), ("j1", "j2"), ("j3",)]),
    free=st.sampled_from([0.0, 0.5]),
    first=st.sampled_from([None, after(-9)]),
    ends=st.sampled_from([None, after(-1), after(1)]),
    interruptible=st.sampled_from([None, after(-1), after(1)]),
)
MEMBERS = st.lists(
    st.builds(
        Member,
        name=st.integers(0, 10_000).map(str),
        state=STATES,
        runs=st.none() | RUNS,
        since=st.sampled_from([after(0), after(-1)]),
        domains=st.tuples(st.sampled_from(["r1", "r2", None])),
        excluded=st.sampled_from([None, None, None, MemberWait("Held", "by alice")]),
    ),
    max_size=24,
    unique_by=lambda member: member.name,
)
AMOUNTS = st.sampled_from([0, 1, 2, 5, "10%", "50%", "100%", None])
STRATEGIES = st.builds(
    UpgradeStrategy,
    max_parallel=AMOUNTS,
    max_unavailable=AMOUNTS,
    domains=st.sampled_from(
        [(DomainCap(key="rack", max_unavailable=1),), (DomainCap(key="rack", max_unavailable="50%"),)]
    ),
    canary=st.builds(Canary, count=st.integers(0, 3), soak_seconds=st.sampled_from([0, 600])),
    waves=st.sampled_from([(), (Wave(share=10), Wave(share=50, soak_seconds=600))]),
    stragglers=st.none() | st.builds(Stragglers, after_seconds=st.just(0), max_closed=st.sampled_from([0, 1, "10%"])),
    max_failures=st.integers(1, 3),
)


def shares_a_job(one: Member, other: Member) -> bool:
    if one.runs is None or other.runs is None:
        return False
    return bool(set(one.runs.jobs) & set(other.runs.jobs))


@given(members=MEMBERS, rules=STRATEGIES)
def test_whatever_the_fleet_looks_like_no_job_is_interrupted_no_cap_is_broken_and_each_server_has_its_reason(
    members: list[Member], rules: UpgradeStrategy
) -> None:
    everything = fleet(*members)
    found = plan(everything, rules, NOON)
    by_name = {member.name: member for member in members}
    idle_ones = [by_name[name] for name in found.claims]
    assert all(m.state == "Outdated" and m.runs is None and m.excluded is None for m in idle_ones)
    ended = [by_name[each.name] for each in found.interruptions]
    for member in ended:
        assert member.state == "Outdated"
        assert member.excluded is None
        assert member.runs is not None
        assert member.runs.interruptible is not None, "one of its jobs may not be ended"
        together = {m.name for m in members if shares_a_job(m, member) and m.state == "Outdated" and m.excluded is None}
        assert together <= {each.name for each in found.interruptions}, "half of a gang"
    assert all(each.at >= after(0) + 900 for each in found.interruptions), "none without its warning"
    claimed = [*idle_ones, *ended]
    left = {m.name for m in members if m.state not in ("Updated", "Updating")}
    taken = {m.name for m in claimed}
    assert taken | found.waits.keys() == left
    assert not found.waits.keys() & taken
    assert not found.closed & found.steered
    assert all(by_name[name].runs is not None for name in found.closed)
    assert not (found.closed | found.steered) & taken
    if claimed:
        assert [m for m in members if m in idle_ones] == idle_ones, "in the order of the fleet"
        begun = sum(m.state in ("Updated", "Updating") for m in members) + len(claimed)
        assert begun <= found.stage.limit
        states = [member.state for member in members]
        ours = states.count("Updating") + states.count("Failed") + len(claimed)
        assert ours <= resolve_amount("10%" if rules.max_parallel is None else rules.max_parallel, len(members))
        out = ours + states.count("Down") + states.count("Absent")
        assert out <= resolve_amount("25%" if rules.max_unavailable is None else rules.max_unavailable, len(members))
        assert states.count("Failed") < rules.max_failures
        for rack in {m.domains[0] for m in claimed} - {None}:
            there = [m for m in members if m.domains == (rack,)]
            gone = sum(m.state in ("Updating", "Failed", "Down", "Absent") or m in claimed for m in there)
            assert gone <= resolve_amount(rules.domains[0].max_unavailable, len(there))
    assert plan(everything, rules, NOON) == found


@given(members=MEMBERS, rules=STRATEGIES)
def test_a_rollout_whose_jobs_end_is_complete_or_says_who_has_to_decide(
    members: list[Member], rules: UpgradeStrategy
) -> None:
    now, passed = NOON, 0
    for _ in range(4 * len(members) + 8):
        now += timedelta(hours=1)
        found = plan(fleet(*members, passed=passed), rules, now)
        passed = found.stage.passed
        reasons_now = {wait.reason for name, wait in found.waits.items()}
        begun = found.claims or found.interruptions
        if not begun and not reasons_now & {"Job", "Gang", "Soak"} and all(m.state != "Updating" for m in members):
            break
        members = [
            replace(m, state="Updated", since=now.timestamp())
            if m.state == "Updating" or m.name in {*found.claims, *(each.name for each in found.interruptions)}
            else replace(m, runs=None)
            for m in members
        ]
    else:
        pytest.fail(f"it goes on and on: {found}")
    # What is left waits for a person, for a server that is out of use, or for caps that round to nothing.
    left = {wait.reason for wait in found.waits.values()}
    assert left <= {"Paused", "Failures", "Failed", "Absent", "Down", "Held", "Parallel", "Unavailable", "Domain"}
    if left & {"Parallel", "Unavailable", "Domain"}:
        states = {m.state for m in members}
        assert states & {"Failed", "Down", "Absent"} or len(members) < 2
