"""When a drain is over, and when it is out of time. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api import Server
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import HOLD_REQUESTED
from provisioner.api.nodes.maintenance import RELEASE_FINALIZER, MaintenanceStatus, SlurmDrain
from provisioner.jobs.model.work import Job, SlurmDrained, Work
from provisioner.maintenance.decide import cannot_be_taken_back, decide
from provisioner.maintenance.model.budget import Budget
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.steps import CloseSlurm, Evict, NeedBudget, NeedId, SetTaint, Wait, WriteStatus
from provisioner.maintenance.phases.claiming import after_eviction, closed, decide_draining, not_reserved
from provisioner.maintenance.status.record import note
from provisioner.maintenance.status.verdict import read_verdict
from provisioner.rules.requests import merge
from tests.maintenance.samples import NOON, requestor
from tests.maintenance.situations import facts, later, node, pool, server

LIMIT = 600
HELD = ({"type": HOLD_REQUESTED, "status": "True"},)
NOTHING = Work()
A_POD = Work(evictable=("default/left",))
A_JOB = Work(jobs=(Job(kind="Pod", name="default/train", servers=("r01-u01",), message="runs"),))
UNKNOWN = Work(unknown=("slurmrestd does not answer",))


def without_bmc() -> Server:
    return replace(server(), spec=replace(server().spec, bmc=None))


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


def test_a_server_that_was_not_closed_is_closed_also_where_that_is_said_of_a_time_to_come() -> None:
    """By a clock that was ahead: what was closed then may be open now."""
    room = Budget(allowed=1, taken=(), fresh=True)
    not_yet = claiming(NOTHING, closed=False, budget=room)
    assert decide(not_yet, later(1)) == CloseSlurm(reason="provisioner: r01-u01-1")
    assert decide(claiming(NOTHING), later(-9000)) == CloseSlurm(reason="provisioner: r01-u01-1")


def test_a_job_that_slips_in_after_its_deadline_is_told_of_it_before_it_is_asked_to_end() -> None:
    found = claiming(A_JOB)
    (asked,) = found.maintenance.spec.requestors
    past = replace(asked, policy="Deadline", deadline_time=rfc3339(NOON))
    status = replace(found.maintenance.status, warned_time=rfc3339(NOON))  # which was for those that ran then
    spec = replace(found.maintenance.spec, requestors=(past,))
    maintenance = replace(found.maintenance, spec=spec, status=status)
    found = replace(found, maintenance=maintenance, wanted=merge(maintenance))
    assert decide(found, later(400)) == Wait(seconds=3, warn=later(400))


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"pool": None}, "PoolGone"),
        ({"node": node(taint="r01-u01-1", conditions=HELD)}, "Held"),
        ({"work": A_JOB}, "JobStarted"),
    ],
    ids=["its pool is gone", "a person holds it", "a job has slipped in"],
)
def test_a_claim_lets_go_of_a_server_that_may_not_be_disturbed_any_more(changes: dict[str, Any], cause: str) -> None:
    found = claiming(NOTHING)
    (asked,) = found.maintenance.spec.requestors
    boots = replace(
        found.maintenance, spec=replace(found.maintenance.spec, requestors=(replace(asked, action="Reboot"),))
    )
    step = decide(replace(found, maintenance=boots, wanted=merge(boots), **changes), later(4))
    assert isinstance(step, WriteStatus)
    verdict = read_verdict(step.status)
    assert verdict is not None
    assert (verdict.cause, verdict.phase) == (cause, "Waiting")


def test_a_node_that_has_lost_its_taint_is_closed_again_before_anything_else() -> None:
    assert decide(replace(claiming(NOTHING), node=node()), later(4)) == SetTaint(value="r01-u01-1")
    assert decide(replace(draining(A_POD), node=node()), later(4)) == SetTaint(value="r01-u01-1")


def test_who_is_asked_to_end_is_said_beside_what_is_not_known() -> None:
    step = after_eviction(draining(UNKNOWN), (), later(1))
    assert isinstance(step, WriteStatus)
    assert [each.kind for each in step.status.blockers] == ["Slurm"]


SOMEBODYS = SlurmDrained(node="r01-u01", reason="broken fan", ours=False)
ANOTHERS = SlurmDrained(node="r01-u01", reason="provisioner: r01-u01-0", ours=False)
OURS = SlurmDrained(node="r01-u01", reason="provisioner: r01-u01-1", ours=True)


@pytest.mark.parametrize(
    ("drained", "words", "is_ours"),
    [
        (OURS, "drained in Slurm as r01-u01", True),
        (ANOTHERS, "still drained by a Maintenance before it ('provisioner: r01-u01-0')", False),
        (SOMEBODYS, "drained in Slurm by somebody else ('broken fan'), which stays as it is", False),
        (None, "closed to new pods by its taint", False),
    ],
    ids=["by us", "by a Maintenance before", "by a person", "not at all"],
)
def test_only_a_drain_of_our_own_is_on_record_to_be_lifted(
    drained: SlurmDrained | None, words: str, is_ours: bool
) -> None:
    status = closed(claiming(NOTHING), drained, later(1))
    assert words in status.timeline[-1].message
    assert (status.slurm is not None) is is_ours


def test_a_reservation_that_slurm_cannot_make_is_not_on_record_to_be_deleted() -> None:
    found = claiming(NOTHING)
    reserving = SlurmDrain(node="r01-u01", reason=OURS.reason, reserved_time=rfc3339(later(900)))
    status = replace(found.maintenance.status, slurm=reserving)
    found = replace(found, maintenance=replace(found.maintenance, status=status))
    never = not_reserved(found, OURS, None, later(1)).slurm
    assert never is not None
    assert never.reserved_time is None
    failed = not_reserved(found, OURS, "slurmrestd says 500", later(1)).slurm
    assert failed is not None
    assert failed.reserved_time == reserving.reserved_time, "it may be there all the same"


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


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"image": None}, "ImageUnavailable"),
        ({"server": without_bmc(), "pool": pool(reboot_methods=("Reset",))}, "NoRebootMethod"),
    ],
    ids=["its image is gone", "no method is open"],
)
def test_an_empty_server_that_cannot_boot_is_let_go(changes: dict[str, Any], cause: str) -> None:
    step = decide(replace(drained(NOTHING), **changes), later(60))
    assert isinstance(step, WriteStatus)
    verdict = read_verdict(step.status)
    assert verdict is not None
    assert verdict.cause == cause


@pytest.mark.parametrize(("action", "words"), [("Reboot", "is rebooted"), ("Drain", "stays out of use until")])
def test_an_empty_server_is_said_to_be_rebooted_or_to_stay_out_of_use(action: Any, words: str) -> None:
    found = draining(NOTHING)
    (asked,) = found.maintenance.spec.requestors
    asks = replace(found.maintenance, spec=replace(found.maintenance.spec, requestors=(replace(asked, action=action),)))
    step = decide_draining(replace(found, maintenance=asks, wanted=merge(asks)), later(60))
    assert isinstance(step, WriteStatus)
    assert step.status.next_step is not None
    assert step.status.next_step.startswith(words)


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
