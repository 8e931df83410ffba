"""Rounds of checks, repeats, retries, releases: which boot may be used, and what is said meanwhile."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from provisioner.api import Condition
from provisioner.api.machinery.codec import from_json
from provisioner.api.nodes.contract import VERIFICATION_RELEASE_REQUESTED, VERIFICATION_RETRY_REQUESTED
from provisioner.api.servers.server import JoinStatus, Verification
from provisioner.health.decide import PAUSE, decide
from provisioner.health.decision import HealthDecision
from provisioner.health.jobs.outcome import JobState
from provisioner.health.situation import CheckInputs
from tests.health.objects import (
    BOOT,
    DIGEST,
    NOON,
    ORDER,
    OTHER_BOOT,
    after,
    booted,
    carried_on,
    good_facts,
    job_check,
    node,
    node_condition,
    situation,
    strict_pool,
)

RUNNING = JobState(phase="Running", reason="Running", message="pod p is running")
PASSED = JobState(phase="Passed", reason="Completed", message="42 GB/s")
FAILED = JobState(phase="Failed", reason="CheckFailed", message="0 GB/s")
BROKEN = good_facts(cpus=127)


def verified(decision: HealthDecision) -> Condition:
    (found,) = (c for c in decision.status["conditions"] if c["type"] == "Verified")
    return from_json(Condition, found)


def verification(decision: HealthDecision) -> Verification:
    return from_json(Verification, decision.status["verification"])


def said(decision: HealthDecision) -> tuple[str, str]:
    condition = verified(decision)
    return condition.status, condition.reason


def reasons(decision: HealthDecision) -> list[str]:
    return [event.reason for event in decision.events]


def run(world: CheckInputs, *steps: tuple[float, dict[str, Any]]) -> tuple[CheckInputs, HealthDecision]:
    """Decide at each moment with those parts changed, each decision written before the next."""
    decision = None
    for seconds, parts in steps:
        world = replace(world, **parts)
        decision = decide(world, after(seconds))
        world = carried_on(world, decision)
    assert decision is not None
    return world, decision


def failed_for_good() -> CheckInputs:
    world, decision = run(situation(node=node(BROKEN)), (0, {}), (60, {}))
    assert said(decision) == ("False", "Processors")
    return world


def asking(type_: str, *, at: datetime | None, facts: Any = None, message: str = "") -> Any:
    return node(facts, node_condition(type_, at=at, message=message))


def test_a_machine_as_it_should_be_is_verified_at_once() -> None:
    decision = decide(situation(), NOON)
    assert said(decision) == ("True", "Passed")
    seen = verification(decision)
    assert (seen.boot_id, seen.attempt, seen.image_digest) == (BOOT, 1, DIGEST)
    assert seen.finished_time is not None
    assert reasons(decision) == ["VerificationPassed"], "that it began is not told of a round that comes out at once"


def test_what_was_verified_stays_so_for_its_boot_and_is_told_of_once() -> None:
    _, decision = run(situation(), (0, {}), (600, {"node": node(BROKEN, ready=False)}))
    assert said(decision) == ("True", "Passed")
    assert reasons(decision) == []


def test_another_boot_is_unverified_at_once() -> None:
    world, _ = run(situation(), (0, {}))
    other = replace(world.server.status, join=JoinStatus(order_id="order-2", boot_id=OTHER_BOOT))
    assert other.order is not None
    joined = replace(other, order=replace(other.order, id="order-2"))
    for server, seen in (
        (replace(world.server, status=world.server.status), node(boot_id=OTHER_BOOT)),
        (replace(world.server, status=joined), node()),
        (replace(world.server, status=joined), node(good_facts(), boot_id=OTHER_BOOT)),
        (world.server, None),
    ):
        decision = decide(replace(world, server=server, node=seen), after(10))
        assert verified(decision).status == "Unknown", verified(decision)


def test_a_new_order_makes_the_old_boot_unverified_and_its_withdrawal_brings_it_back() -> None:
    world, _ = run(situation(), (0, {}))
    assert world.server.status.order is not None
    order = replace(world.server.status.order, id="order-2", reason="Requested")
    ordered = replace(world, server=replace(world.server, status=replace(world.server.status, order=order)))
    during, decision = run(ordered, (10, {}))
    assert said(decision) == ("Unknown", "WaitsForBoot")
    assert "order-2 (Requested)" in verified(decision).message
    old = replace(during.server.status, order=replace(order, id=ORDER))
    assert said(decide(replace(during, server=replace(during.server, status=old)), after(20))) == ("True", "Passed")


def test_a_node_that_was_adopted_is_neither_verified_nor_answered_with_a_round() -> None:
    adopted = replace(booted(), status=replace(booted().status, order=None, join=None))
    decision = decide(situation(server=adopted, node=asking(VERIFICATION_RETRY_REQUESTED, at=NOON)), NOON)
    assert said(decision) == ("Unknown", "Adopted")
    assert "verification" not in decision.status
    assert [(a.type, a.reason) for a in decision.answers] == [(VERIFICATION_RETRY_REQUESTED, "NotApplicable")]


def test_a_server_that_was_never_ordered_to_boot_says_nothing() -> None:
    bare = replace(booted(), status=replace(booted().status, order=None, join=None))
    assert decide(situation(server=bare, node=None), NOON).status["conditions"] == []


def test_facts_are_waited_for_and_then_given_up() -> None:
    world, waits = run(situation(node=node("")), (0, {}), (299, {}))
    assert said(waits) == ("Unknown", "WaitsForFacts")
    assert waits.requeue_after_seconds == pytest.approx(1)
    _, decision = run(world, (300, {}))
    assert said(decision) == ("False", "Facts")
    assert "provisioner-node" in verified(decision).message


def test_what_may_come_right_by_itself_gets_its_time() -> None:
    dark = good_facts(infiniband_ports=good_facts().infiniband_ports[:1])
    world, waits = run(situation(node=node(dark)), (0, {}), (59, {}))
    assert said(waits) == ("Unknown", "Running")
    assert "InfiniBand: 1 port" in verified(waits).message
    assert said(run(world, (59.5, {"node": node()}))[1]) == ("True", "Passed")
    assert said(run(world, (60, {}))[1]) == ("False", "InfiniBand")


def test_what_cannot_come_right_fails_at_once_and_the_rest_is_left_open() -> None:
    slow = good_facts(cpus=127, clock_synchronized=False)
    decision = decide(situation(node=node(slow)), NOON)
    assert said(decision) == ("False", "Processors")
    results = {each.name: each.result for each in verification(decision).checks}
    assert (results["Processors"], results["Clock"], results["Memory"]) == ("Failed", "Unknown", "Passed")


def test_a_failed_round_is_repeated_after_a_pause_as_often_as_the_pool_says_and_then_a_person_is_asked() -> None:
    world, first = run(situation(node=node(BROKEN)), (0, {}))
    assert reasons(first) == ["VerificationFailed"]
    assert first.requeue_after_seconds == PAUSE.total_seconds()
    assert "the next one begins at 2026-01-02T12:01:00Z" in verified(first).message
    world, waits = run(world, (59, {}))
    assert (verification(waits).attempt, reasons(waits)) == (1, [])
    world, second = run(world, (60, {}))
    assert (verification(second).attempt, said(second)) == (2, ("False", "Processors"))
    assert "a person must act" in verified(second).message
    world, last = run(world, (6000, {"node": node()}))
    assert (verification(last).attempt, said(last), last.requeue_after_seconds) == (2, ("False", "Processors"), None)


def test_a_retry_makes_one_more_round_and_is_answered_with_what_came_of_it() -> None:
    world = failed_for_good()
    world, again = run(world, (100, {"node": asking(VERIFICATION_RETRY_REQUESTED, at=after(99), facts=BROKEN)}))
    assert (verification(again).attempt, said(again)) == (3, ("False", "Processors"))
    assert [(a.type, a.reason) for a in again.answers] == [(VERIFICATION_RETRY_REQUESTED, "Failed")]
    assert "127 logical processors" in again.answers[0].message
    for _ in range(3):  # the answer did not get through: no further round
        world, same = run(world, (101, {}))
        assert verification(same).attempt == 3
    world, answered = run(world, (102, {"node": node()}))
    assert (verification(answered).attempt, answered.answers) == (3, ())
    # Asked anew with a time that is our own answer's, or with none: people patch the status and nothing else.
    for at in (after(99), None):
        _, passed = run(world, (110, {"node": asking(VERIFICATION_RETRY_REQUESTED, at=at)}))
        assert (verification(passed).attempt, said(passed)) == (4, ("True", "Passed"))
        assert [(a.type, a.reason) for a in passed.answers] == [(VERIFICATION_RETRY_REQUESTED, "Passed")]


def test_a_retry_that_is_asked_for_during_a_round_is_answered_by_that_round() -> None:
    dark = good_facts(clock_synchronized=False)
    world, during = run(
        situation(node=node(dark)),
        (0, {}),
        (5, {"node": asking(VERIFICATION_RETRY_REQUESTED, at=after(4), facts=dark)}),
    )
    assert during.answers == ()
    _, over = run(world, (6, {"node": asking(VERIFICATION_RETRY_REQUESTED, at=after(4))}))
    assert (verification(over).attempt, said(over)) == (1, ("True", "Passed"))
    assert [a.reason for a in over.answers] == ["Passed"]


def test_a_retry_of_what_has_passed_is_answered_and_checks_nothing() -> None:
    _, decision = run(
        situation(), (0, {}), (10, {"node": asking(VERIFICATION_RETRY_REQUESTED, at=after(9), facts=BROKEN)})
    )
    assert (verification(decision).attempt, said(decision)) == (1, ("True", "Passed"))
    assert [a.reason for a in decision.answers] == ["Passed"]


def test_a_release_lets_the_node_in_for_this_boot_with_the_words_of_who_asked() -> None:
    asked = asking(VERIFICATION_RELEASE_REQUESTED, at=after(99), facts=BROKEN, message="alice: needed tonight\n")
    world, decision = run(failed_for_good(), (100, {"node": asked}))
    assert said(decision) == ("True", "Released")
    assert verification(decision).released_by == "alice: needed tonight"
    assert reasons(decision) == ["VerificationReleased"]
    assert decision.events[0].type == "Warning"
    assert "alice" in decision.events[0].message
    assert [(a.type, a.reason) for a in decision.answers] == [(VERIFICATION_RELEASE_REQUESTED, "Released")]
    assert {c.result for c in verification(decision).checks if c.name == "Processors"} == {"Failed"}
    world, again = run(world, (160, {}))
    assert (said(again), reasons(again)) == (("True", "Released"), [])


def test_a_release_counts_before_any_check_was_made() -> None:
    world = situation(node=asking(VERIFICATION_RELEASE_REQUESTED, at=after(1), facts=""))
    assert said(decide(world, after(2))) == ("True", "Released")


@pytest.mark.parametrize("at", [after(-5), None])
def test_a_release_from_before_the_boot_lets_nobody_in(at: datetime | None) -> None:
    asked = asking(VERIFICATION_RELEASE_REQUESTED, at=at, facts=BROKEN)
    decision = decide(situation(node=asked), after(10))
    assert said(decision) == ("False", "Processors")
    assert [(a.type, a.reason) for a in decision.answers] == [(VERIFICATION_RELEASE_REQUESTED, "Stale")]
    assert "lastTransitionTime of now" in decision.answers[0].message


def test_a_release_of_what_has_passed_is_not_needed() -> None:
    decision = run(situation(), (0, {}), (9, {"node": asking(VERIFICATION_RELEASE_REQUESTED, at=after(8))}))[1]
    assert (said(decision), verification(decision).released_by) == (("True", "Passed"), None)
    assert [a.reason for a in decision.answers] == ["NotNeeded"]


def test_of_several_conditions_of_a_type_one_that_is_true_counts() -> None:
    several = node(
        BROKEN,
        node_condition(VERIFICATION_RELEASE_REQUESTED, at=after(2), message="first"),
        node_condition(VERIFICATION_RELEASE_REQUESTED, at=after(3), message="last"),
        node_condition(VERIFICATION_RELEASE_REQUESTED, "False", at=after(4)),
    )
    assert verification(decide(situation(node=several), after(5))).released_by == "last"


def test_jobs_run_one_after_the_other_once_everything_else_has_passed() -> None:
    checks = (job_check("first"), job_check("second"))
    dark = node(good_facts(clock_synchronized=False))
    world, decision = run(situation(pool=strict_pool(*checks), node=dark), (0, {}))
    assert decision.start is None
    world, decision = run(world, (1, {"node": node()}))
    assert decision.start is not None
    assert (decision.start.check.name, decision.start.boot_id, decision.start.attempt) == ("first", BOOT, 1)
    world, decision = run(world, (2, {"jobs": {"first": RUNNING}}))
    assert "first: pod p is running" in verified(decision).message
    world, decision = run(world, (3, {"jobs": {"first": PASSED}}))
    assert decision.start is not None
    assert decision.start.check.name == "second"
    world, decision = run(world, (4, {"jobs": {"second": PASSED}}))
    assert said(decision) == ("True", "Passed")
    assert {"first", "second"} <= {each.name for each in verification(decision).checks}


def test_a_job_that_fails_fails_the_round_under_its_own_name() -> None:
    world = situation(pool=strict_pool(job_check("gpu-burn"), job_check("second")), jobs={"gpu-burn": FAILED})
    decision = decide(world, NOON)
    assert said(decision) == ("False", "GpuBurn")
    assert "0 GB/s" in verified(decision).message
    assert "kubectl logs -n provisioner-checks" in verified(decision).message
    assert decision.start is None
    assert decision.current is not None
    assert decision.current.attempt is None, "what runs still is cleaned up"


def test_a_job_that_cannot_be_made_is_told_in_the_api_servers_words() -> None:
    refused = JobState(phase="Refused", reason="JobRefused", message="spec.template.spec.containers: Required value")
    decision = decide(situation(pool=strict_pool(job_check()), jobs={"gpu-burn": refused}), NOON)
    assert said(decision) == ("False", "GpuBurn")
    assert "Required value; remedy: correct the check's template" in verified(decision).message


def test_a_job_that_may_not_be_made_is_told_with_the_right_that_is_missing() -> None:
    words = (
        'jobs.batch is forbidden: User "c" cannot create resource "jobs" in API group "batch" in the namespace "gpu"'
    )
    refused = JobState(phase="Refused", reason="JobForbidden", message=words)
    decision = decide(situation(pool=strict_pool(job_check(namespace="gpu")), jobs={"gpu-burn": refused}), NOON)
    assert "remedy: let the controller make Jobs in namespace gpu" in verified(decision).message


def test_a_refusal_that_speaks_of_something_forbidden_is_told_by_its_reason() -> None:
    words = "spec.template.spec.hostPID: Forbidden: host namespaces are forbidden"
    refused = JobState(phase="Refused", reason="JobRefused", message=words)
    decision = decide(situation(pool=strict_pool(job_check(namespace="gpu")), jobs={"gpu-burn": refused}), NOON)
    assert "remedy: correct the check's template" in verified(decision).message


@pytest.mark.parametrize("end", [JobState(phase="Failed", reason="TimedOut"), JobState(phase="Absent")])
def test_a_job_that_takes_too_long_fails_with_what_it_waited_for(end: JobState) -> None:
    waits = JobState(phase="Running", message="pod p waits: ImagePullBackOff: no such image")
    world, _ = run(situation(pool=strict_pool(job_check())), (0, {}), (10, {"jobs": {"gpu-burn": waits}}))
    world, decision = run(world, (159, {}))
    assert said(decision) == ("Unknown", "Running")
    _, decision = run(world, (160, {"jobs": {"gpu-burn": end}}))
    assert said(decision) == ("False", "GpuBurn")
    assert "it took longer than 100 s; last seen: pod p waits: ImagePullBackOff" in verified(decision).message


def test_what_breaks_while_a_job_runs_fails_the_round() -> None:
    world, _ = run(situation(pool=strict_pool(job_check())), (0, {}), (10, {"jobs": {"gpu-burn": RUNNING}}))
    gone = good_facts(pci=good_facts().pci[:1])
    world, decision = run(world, (50, {"node": node(gone)}))
    assert said(decision) == ("Unknown", "Running")
    assert said(run(world, (110, {}))[1]) == ("False", "GPUs")


def test_without_its_pool_a_boot_is_not_judged() -> None:
    decision = decide(situation(pool=None), NOON)
    assert said(decision) == ("Unknown", "WaitsForPool")


def test_figures_that_change_do_not_change_what_was_written() -> None:
    dark = node(good_facts(clock_synchronized=False))
    world, first = run(situation(node=dark), (0, {}))
    _, second = run(world, (1, {"clock_skew_seconds": 0.7}))
    assert first.status == second.status
