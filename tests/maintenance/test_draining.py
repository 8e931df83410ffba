"""When a drain is over, and when it is out of time. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api.maintenance import RELEASE_FINALIZER, MaintenanceStatus
from provisioner.api.meta import rfc3339_micro
from provisioner.jobs.work import Job, Work
from provisioner.maintenance.decide import cannot_be_taken_back, decide
from provisioner.maintenance.facts import MaintenanceFacts
from provisioner.maintenance.phases.budget import Budget
from provisioner.maintenance.phases.claiming import after_eviction
from provisioner.maintenance.phases.verdict import read_verdict
from provisioner.maintenance.status.record import note
from provisioner.maintenance.steps import Evict, NeedBudget, NeedId, Wait, WriteStatus
from provisioner.rules.requests import merge
from tests.maintenance.samples import NOON, requestor
from tests.maintenance.situations import facts, later, node, pool

LIMIT = 600
NOTHING = Work()
A_POD = Work(evictable=("default/left",))
A_JOB = Work(jobs=(Job(kind="Pod", name="default/train", servers=("r01-u01",), message="runs"),))
UNKNOWN = Work(unknown=("slurmrestd does not answer",))


def draining(work: Work | None) -> MaintenanceFacts:
    """A drain under Now that began at noon."""
    found = facts(
        requestor("user-ada", "Drain", policy="Now"),
        status={"claimed_time": rfc3339_micro(NOON)},
        node=node(taint="r01-u01-1"),
        pool=pool(drain_timeout_seconds=LIMIT),
        work=work,
    )
    closed = note(found.maintenance.status, NOON, "Closed", "in words", phase="Claiming")
    begun = note(closed, NOON, "DrainStarted", "in words", phase="Draining")
    metadata = replace(found.maintenance.metadata, finalizers=(RELEASE_FINALIZER,))
    return replace(found, maintenance=replace(found.maintenance, metadata=metadata, status=begun))


@pytest.mark.parametrize("work", [A_POD, A_JOB, UNKNOWN, None], ids=["a pod", "a job", "not known", "not looked"])
def test_a_drain_that_is_not_empty_in_time_fails(work: Work | None) -> None:
    step = decide(draining(work), later(LIMIT + 1))
    assert isinstance(step, WriteStatus)
    verdict = read_verdict(step.status)
    assert verdict is not None
    assert verdict.cause == "DrainTimedOut"


@pytest.mark.parametrize("work", [A_POD, NOTHING], ids=["not empty yet", "empty"])
def test_a_drain_goes_back_if_the_pool_is_gone_to_which_the_server_was_to_move(work: Work) -> None:
    found = draining(work)
    (asked,) = found.maintenance.spec.requestors
    asked = replace(asked, name="rollout", action="Reimage", image_ref="gpu-node-abababababab", node_pool_ref="other")
    moves = replace(found.maintenance, spec=replace(found.maintenance.spec, requestors=(asked,)))
    step = decide(replace(found, maintenance=moves, wanted=merge(moves), next_pool=None), later(1))
    assert isinstance(step, WriteStatus)
    verdict = read_verdict(step.status)
    assert verdict is not None
    assert (verdict.cause, verdict.phase) == ("PoolGone", "Waiting")
    there = replace(found, maintenance=moves, wanted=merge(moves), next_pool=pool())
    step = decide(there, later(1))
    assert not isinstance(step, WriteStatus) or read_verdict(step.status) is None


def test_what_runs_there_is_named_on_record_before_it_is_asked_to_end_and_so_many_and_no_more() -> None:
    found = draining(Work(evictable=tuple(f"ml/train-{number}" for number in range(12))))
    closed = replace(found.maintenance.status, phase="Claiming", timeline=found.maintenance.status.timeline[:1])
    step = decide(replace(found, maintenance=replace(found.maintenance, status=closed)), later(60))
    assert isinstance(step, WriteStatus)
    begun = step.status.timeline[-1]
    names = ", ".join(f"ml/train-{number}" for number in range(8))
    assert (begun.reason, begun.message.partition(": ")[2]) == ("DrainStarted", f"{names} and 4 more")
    asked = after_eviction(found, (), later(61))
    assert isinstance(asked, WriteStatus)
    assert asked.status.timeline[-1].message == f"asked to end: {names} and 4 more"


def test_until_then_what_runs_there_is_asked_to_end() -> None:
    assert isinstance(decide(draining(A_POD), later(LIMIT - 1)), Evict)


def test_one_that_is_seen_empty_after_its_time_is_over() -> None:
    """Whoever decides may have stood still meanwhile."""
    step = decide(draining(NOTHING), later(LIMIT + 1))
    assert isinstance(step, WriteStatus)
    assert (read_verdict(step.status), step.status.phase) == (None, "Drained")


def claiming(work: Work, *, closed: bool = True, **changes: Any) -> MaintenanceFacts:
    """A claim under WhenIdle of noon; closed: the server was closed at noon, too."""
    found = draining(work)
    (asked,) = found.maintenance.spec.requestors
    spec = replace(found.maintenance.spec, requestors=(replace(asked, policy="WhenIdle"),))
    status = note(MaintenanceStatus(claimed_time=rfc3339_micro(NOON)), NOON, "Claimed", "in words", phase="Claiming")
    status = note(status, NOON, "Closed", "in words") if closed else status
    claimed = replace(found.maintenance, spec=spec, status=status)
    return replace(found, maintenance=claimed, wanted=merge(claimed), **changes)


def test_a_claim_goes_by_a_fresh_budget_and_is_given_up_where_that_is_used_up() -> None:
    stale = claiming(NOTHING, closed=False, budget=Budget(allowed=1, taken=(), fresh=False))
    assert decide(stale, later(1)) == NeedBudget(fresh=True)
    step = decide(replace(stale, budget=Budget(allowed=1, taken=("r01-u02",), fresh=True)), later(1))
    assert isinstance(step, WriteStatus)
    verdict = read_verdict(step.status)
    assert verdict is not None
    assert (verdict.cause, verdict.phase) == ("OverBudget", "Waiting")


def test_a_closed_server_is_emptied_once_a_scheduler_has_seen_it_closed() -> None:
    assert decide(claiming(A_POD), later(1)) == Wait(seconds=2)
    step = decide(claiming(A_POD), later(3))
    assert isinstance(step, WriteStatus)
    assert step.status.phase == "Draining"


def test_a_claim_waits_while_it_is_not_known_whether_jobs_run() -> None:
    step = decide(claiming(UNKNOWN), later(3))
    assert isinstance(step, WriteStatus)
    assert (step.status.phase, [each.kind for each in step.status.blockers]) == ("Claiming", ["Slurm"])


def drained(work: Work) -> MaintenanceFacts:
    """It was empty, and is about to be rebooted, under Now."""
    found = draining(work)
    (asked,) = found.maintenance.spec.requestors
    reboots = replace(
        found.maintenance, spec=replace(found.maintenance.spec, requestors=(replace(asked, action="Reboot"),))
    )
    status = note(reboots.status, NOON, "Drained", "in words", phase="Drained")
    return replace(found, maintenance=replace(reboots, status=status), wanted=merge(reboots))


@pytest.mark.parametrize("work", [A_POD, A_JOB], ids=["a pod", "a job"])
def test_a_server_on_which_something_runs_again_is_emptied_again_before_it_reboots(work: Work) -> None:
    """Also of what is no job: it would be killed by the reboot without a word."""
    step = decide(drained(work), later(60))
    assert isinstance(step, WriteStatus)
    assert step.status.phase == "Draining"


def test_an_empty_server_is_rebooted() -> None:
    step = decide(drained(NOTHING), later(60))
    assert isinstance(step, NeedId)
    begun = step.then("try-1")
    assert isinstance(begun, WriteStatus)
    assert begun.status.phase == "Rebooting"


def test_it_is_out_of_time_by_a_look_past_every_cache_alone() -> None:
    found = draining(A_POD)
    step = decide(found, later(LIMIT + 1))
    assert cannot_be_taken_back(found, step)
    assert isinstance(step, WriteStatus)
    judged = replace(found, maintenance=replace(found.maintenance, status=step.status))
    assert not cannot_be_taken_back(judged, decide(judged, later(LIMIT + 2)))
