"""Which jobs are ended at a deadline, and with them on which servers."""

from __future__ import annotations

from datetime import timedelta

from provisioner.api.pools.upgrade_strategy import DomainCap, UpgradeDeadline
from provisioner.rollout.interrupting import Interruption, may_be_ended_from
from provisioner.rollout.plan import plan
from tests.rollout.fleets import NOON, after, busy, fleet, idle, strategy


def test_without_a_deadline_no_job_is_ended() -> None:
    assert may_be_ended_from(None, after(0), after(-9)) is None
    assert plan(fleet(busy("a", "job-1", began=-999)), strategy(), NOON).interruptions == ()


def test_a_job_may_be_ended_after_the_deadline_and_when_it_has_run_for_its_least_time() -> None:
    deadline = UpgradeDeadline(after_seconds=24 * 3600, minimum_run_seconds=4 * 3600)
    assert may_be_ended_from(deadline, after(0), after(-9)) == after(24)
    assert may_be_ended_from(deadline, after(0), after(23)) == after(27)


def test_only_jobs_of_the_partitions_and_qualities_of_service_that_are_named_are_ended() -> None:
    deadline = UpgradeDeadline(after_seconds=0, partitions=("spot",), qos=("low", "scavenge"))
    assert may_be_ended_from(deadline, after(0), after(-1), partition="spot", qos="low") == after(0)
    assert may_be_ended_from(deadline, after(0), after(-1), partition="prod", qos="low") is None
    assert may_be_ended_from(deadline, after(0), after(-1), partition="spot", qos="high") is None
    assert may_be_ended_from(deadline, after(0), after(-1)) is None, "a pod is in no partition"


def test_a_job_is_told_as_long_before_as_the_pool_says_and_the_plan_says_when_that_is() -> None:
    early = plan(fleet(busy("a", "job-1", may_end=1)), strategy(), NOON)
    assert early.interruptions == ()
    assert early.again == NOON + timedelta(minutes=45)
    found = plan(fleet(busy("a", "job-1", may_end=1)), strategy(), NOON + timedelta(minutes=45))
    assert found.interruptions == (Interruption("a", after(1)),)
    assert "a" not in found.waits


def test_one_whose_time_is_over_already_is_told_all_the_same() -> None:
    found = plan(fleet(busy("a", "job-1", may_end=-5), warning=timedelta(minutes=5)), strategy(), NOON)
    assert found.interruptions == (Interruption("a", after(5 / 60)),)


def test_a_gang_is_ended_on_all_its_servers_or_on_none() -> None:
    gang = [busy(name, "gang", may_end=-1) for name in ("a", "b", "c")]
    assert plan(fleet(*gang, idle("x")), strategy(max_parallel=3), NOON).interruptions == ()
    found = plan(fleet(*gang), strategy(max_parallel=3), NOON)
    assert [each.name for each in found.interruptions] == ["a", "b", "c"]


def test_what_shares_a_server_with_a_gang_waits_with_it_or_goes_with_it() -> None:
    members = [busy("a", "gang", may_end=-1), busy("b", "gang", "small", may_end=-1), busy("c", "small", may_end=1)]
    assert plan(fleet(*members), strategy(), NOON).interruptions == ()
    found = plan(fleet(*members), strategy(), NOON + timedelta(hours=1))
    assert {each.name: each.at for each in found.interruptions} == dict.fromkeys("abc", after(1.25))
    never = [*members[:2], busy("c", "small", may_end=None)]
    assert plan(fleet(*never), strategy(), NOON + timedelta(hours=9)).interruptions == ()


def test_a_gang_that_is_wider_than_may_be_updated_at_once_is_never_ended_and_says_so() -> None:
    gang = [busy(name, "gang", may_end=-1) for name in ("a", "b", "c")]
    found = plan(fleet(*gang), strategy(max_parallel=2), NOON)
    assert found.interruptions == ()
    assert {wait.reason for wait in found.waits.values()} == {"Gang"}
    assert found.waits["a"].words.startswith("its jobs run on 3 servers together, more than may be updated at once")
    assert found.closed == {"a", "b", "c"}, "its own end is waited for"


def test_a_gang_in_one_failure_domain_counts_against_its_cap_as_a_whole() -> None:
    rules = strategy(domains=(DomainCap(key="rack", max_unavailable=2),))
    three = [busy(name, "gang", may_end=-1, domains=("r1",)) for name in ("a", "b", "c")]
    assert {wait.reason for wait in plan(fleet(*three), rules, NOON).waits.values()} == {"Gang"}
    spread = [*three[:2], busy("c", "gang", may_end=-1, domains=("r2",))]
    assert len(plan(fleet(*spread), rules, NOON).interruptions) == 3


def test_of_several_the_one_that_may_be_ended_first_comes_first_then_the_narrower() -> None:
    wide = [busy(name, "wide", may_end=-2) for name in ("a", "b")]
    first = busy("c", "first", may_end=-3)
    narrow = busy("d", "narrow", may_end=-2)
    assert [e.name for e in plan(fleet(*wide, first, narrow), strategy(max_parallel=2), NOON).interruptions] == [
        "c",
        "d",
    ]
    assert [e.name for e in plan(fleet(*wide, narrow), strategy(max_parallel=2), NOON).interruptions] == ["d"]


def test_idle_servers_are_taken_before_a_job_is_ended() -> None:
    found = plan(fleet(busy("a", "job-1", may_end=-1), idle("b")), strategy(max_parallel=1), NOON)
    assert found.claims == ("b",)
    assert found.interruptions == ()
