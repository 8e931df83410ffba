"""What is waited for before a server is taken out of use, and when it is taken. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api import Server
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import HOLD_REQUESTED
from provisioner.api.nodes.facts import BootReport
from provisioner.api.nodes.maintenance import MaintenanceStatus, SlurmDrain, TimelineEntry
from provisioner.jobs.model.work import Work
from provisioner.maintenance.model.budget import Budget
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.steps import NeedBudget, ReopenSlurm, SetIntent, Wait, WriteStatus
from provisioner.maintenance.phases.claiming import after_eviction
from provisioner.maintenance.phases.staging import stage_intent
from provisioner.maintenance.phases.waiting import decide_waiting
from provisioner.maintenance.requests.effective import effective
from provisioner.rules.nodes import read_node
from provisioner.rules.requests import merge
from tests.boot import objects
from tests.maintenance.fake_jobs import job
from tests.maintenance.samples import NOON, requestor
from tests.maintenance.situations import NODE, blocker, facts, later, node, pool, server

NOW_REQUESTOR = requestor(policy="Now", requested_time=rfc3339(NOON))
FREE = Budget(allowed=1, taken=(), fresh=True)


def by_deadline(seconds: float = 600) -> Any:
    return requestor(policy="Deadline", deadline_time=rfc3339(later(seconds)), requested_time=rfc3339(NOON))


def staged(given: MaintenanceFacts, state: Any = "Staged") -> MaintenanceFacts:
    """The agent has said so of what it was told to stage."""
    intent = stage_intent(given)
    assert intent is not None
    report = BootReport(
        id=intent.id, state=state, image_digest=intent.image_digest, boot_id="boot-1", message="", time=rfc3339(NOON)
    )
    return replace(given, node=node(intent=intent, report=report))


def waits_for(given: MaintenanceFacts, seconds: float = 60) -> list[str]:
    """The kinds of what it waits for; a claim is 'claimed'."""
    step = decide_waiting(given, later(seconds))
    if isinstance(step, WriteStatus):
        return ["claimed"] if step.status.phase == "Claiming" else [b.kind for b in step.status.blockers]
    return [type(step).__name__]


def settled() -> Server:
    """Its boot is over: its Node was Ready once."""
    return server(ready_time=rfc3339(later(5)))


def powered_off() -> Server:
    return replace(settled(), spec=replace(settled().spec, power_state="Off"))


def refused_then(reason: str) -> dict[str, Any]:
    """Of the status: a claim that the API server refused a moment ago, and what was noted after that."""
    refusal = TimelineEntry(time=rfc3339(later(30)), phase="Claiming", reason="NodeRefused", message="it is full")
    return {"timeline": (refusal, TimelineEntry(time=rfc3339(later(31)), phase="Waiting", reason=reason, message="…"))}


HELD = ({"type": HOLD_REQUESTED, "status": "True"},)
MOVES = requestor("rollout", "Reimage", image_ref=objects.image().name, node_pool_ref="other")
ROWS: dict[str, tuple[MaintenanceFacts, list[str]]] = {
    "an idle server with its image staged and a free slot is claimed": (staged(facts(budget=FREE)), ["claimed"]),
    "a free slot in the cache is looked at once more": (
        staged(facts(budget=replace(FREE, fresh=False))),
        ["NeedBudget"],
    ),
    "a job is waited for": (facts(work=Work(jobs=(job(),)), budget=FREE), ["Pod"]),
    "Slurm that does not answer is waited for": (facts(work=Work(unknown=("no answer",)), budget=FREE), ["Slurm"]),
    "what was not looked at is not taken for idle": (facts(work=None, budget=FREE), ["Server"]),
    "Now waits for no job": (facts(NOW_REQUESTOR, work=Work(jobs=(job(),)), budget=FREE), ["claimed"]),
    "Now waits for no staging": (facts(NOW_REQUESTOR, budget=FREE), ["claimed"]),
    "Now waits for the budget": (facts(NOW_REQUESTOR, budget=replace(FREE, taken=("r01-u02-1",))), ["Budget"]),
    "Now waits for a hold": (facts(NOW_REQUESTOR, node=node(conditions=HELD), budget=FREE), ["Hold"]),
    "a job goes on until its deadline": (facts(by_deadline(), work=Work(jobs=(job(),)), budget=FREE), ["Pod"]),
    "an image that no boot host has is waited for": (facts(image=objects.image(available="False")), ["Image"]),
    "an image that does not exist is waited for": (facts(image=None), ["Image"]),
    "an image of another architecture is waited for": (facts(image=objects.image(architecture="arm64")), ["Image"]),
    "a pool that is gone is waited for": (facts(pool=None), ["Server", "Image"]),
    "a pool that is gone to which it was to move is waited for": (facts(MOVES, next_pool=None), ["Server"]),
    "a server that is meant to be off is not booted": (facts(server=powered_off(), budget=FREE), ["Server"]),
    "and is drained all the same": (
        facts(requestor(action="Drain", requested_time=rfc3339(NOON)), server=powered_off(), budget=FREE),
        ["claimed"],
    ),
    "a server without a Node is not drained": (
        facts(requestor(action="Drain", requested_time=rfc3339(NOON)), node=None, server=settled(), budget=FREE),
        ["Server"],
    ),
    "a power cycle waits for no boot that is under way": (
        facts(requestor(action="PowerCycle", requested_time=rfc3339(NOON)), node=None, budget=FREE),
        ["claimed"],
    ),
    "a claim that was refused is made again after a minute": (
        facts(NOW_REQUESTOR, budget=FREE, status=refused_then("Requested")),
        ["Node"],
    ),
    "one before the last that was made is over": (
        facts(NOW_REQUESTOR, budget=FREE, status=refused_then("DrainStarted")),
        ["claimed"],
    ),
    "the agent is waited for until it has staged": (facts(budget=FREE), ["Agent"]),
    "an agent that stages is waited for": (staged(facts(budget=FREE), "Staging"), ["Agent"]),
    "an agent that cannot stage is not waited for": (staged(facts(budget=FREE), "Failed"), ["claimed"]),
    "by a deadline the agent is waited for while there is time": (facts(by_deadline(), budget=FREE), ["Agent"]),
    "after the deadline the agent is not waited for": (facts(by_deadline(30), budget=FREE), ["claimed"]),
    "without kexec nobody stages": (facts(node=node(kexec=False), budget=FREE), ["claimed"]),
    "where kexec is not the first method, nobody waits for it": (
        facts(pool=pool(reboot_methods=("Reset", "Kexec")), budget=FREE),
        ["claimed"],
    ),
    "a power cycle needs no image staged": (
        facts(requestor(action="PowerCycle", requested_time=rfc3339(NOON)), budget=FREE),
        ["claimed"],
    ),
    "a drain needs no image staged": (
        facts(requestor(action="Drain", requested_time=rfc3339(NOON)), budget=FREE),
        ["claimed"],
    ),
    "a boot under way is waited for": (facts(node=None, budget=FREE), ["Server"]),
    "a Node that was deleted after its boot is not: nothing runs there": (
        facts(node=None, server=settled(), budget=FREE),
        ["claimed"],
    ),
    "nor is one that was made anew and never reported": (
        facts(node=node(None), server=settled(), budget=FREE),
        ["claimed"],
    ),
    "pods that are still bound to a deleted Node are waited for": (
        facts(node=None, server=settled(), work=Work(jobs=(job(),)), budget=FREE),
        ["Pod"],
    ),
    "so are Slurm's jobs there, which a power cycle would end as well": (
        facts(
            requestor(action="PowerCycle", requested_time=rfc3339(NOON)),
            node=None,
            server=settled(),
            work=Work(unknown=("no answer",)),
            budget=FREE,
        ),
        ["Slurm"],
    ),
    "without Node and BMC nobody can boot it": (
        facts(node=None, server=replace(settled(), spec=replace(settled().spec, bmc=None)), budget=FREE),
        ["Agent"],
    ),
    "who asked earlier has the free slot first": (
        staged(facts(budget=replace(FREE, before=("r01-u02-1",)))),
        ["Maintenance"],
    ),
    "with a slot for both, both go": (
        staged(facts(budget=replace(FREE, allowed=2, before=("r01-u02-1",)))),
        ["claimed"],
    ),
    "who asked earlier and does not come is not waited for any longer": (
        staged(
            facts(
                budget=replace(FREE, before=("r01-u02-1",)),
                status={"blockers": (blocker("Maintenance", "r01-u02-1", since=30),)},
            )
        ),
        ["claimed"],
    ),
}


@pytest.mark.parametrize("sentence", ROWS)
def test_it_waits(sentence: str) -> None:
    given, expected = ROWS[sentence]
    assert waits_for(given) == expected


A_JOB = Work(jobs=(job(),))
KEPT = Work(jobs=(job(do_not_disrupt=True),))
SAID: dict[str, tuple[MaintenanceFacts, str, str]] = {
    "for a job under WhenIdle": (facts(work=A_JOB), "WhenIdle waits for its end", "when its jobs have ended"),
    "for a job with a deadline": (
        facts(by_deadline(7200), work=A_JOB),
        "it may go on until 2026-01-02T14:00:00Z",
        "when its jobs have ended, or at 2026-01-02T14:00:00Z",
    ),
    "for a job after the deadline that nobody may end": (
        facts(by_deadline(30), work=KEPT, status={"warned_time": rfc3339(NOON)}),
        "its owner forbids eviction: it is waited for, or ask with policy Now",
        "when its jobs have ended",
    ),
    "for the budget": (
        staged(facts(budget=replace(FREE, taken=("r01-u02-1",)))),
        "allows 1 of its servers to be out of use at once",
        "when another server of the pool is back, and those that asked earlier have had their turn",
    ),
    "for who asked earlier": (
        staged(facts(budget=replace(FREE, before=("r01-u02-1",)))),
        "asked earlier and waits for the same budget",
        "when another server of the pool is back, and those that asked earlier have had their turn",
    ),
    "for a person": (
        facts(node=node(conditions=HELD)),
        "is held by a person",
        "when nothing stands in the way any more",
    ),
}


@pytest.mark.parametrize("sentence", SAID)
def test_it_is_said_what_is_waited_for_and_what_comes_next(sentence: str) -> None:
    given, why, ahead = SAID[sentence]
    step = decide_waiting(given, later(60))
    assert isinstance(step, WriteStatus)
    assert why in step.status.blockers[0].message
    assert step.status.next_step == f"is claimed {ahead}"


def test_who_waits_for_others_to_claim_looks_soon_and_who_waits_for_a_boot_without_a_node_looks_again() -> None:
    for given, seconds in (
        (staged(facts(budget=replace(FREE, before=("r01-u02-1",)))), 2),
        (facts(node=None, budget=FREE), 5),
    ):
        step = decide_waiting(given, later(60))
        assert isinstance(step, WriteStatus)
        assert decide_waiting(with_status(given, step.status), later(61)) == Wait(seconds=seconds)


def test_the_agent_is_waited_for_as_long_as_a_boot_by_kexec_may_take_and_once_only() -> None:
    given = facts(budget=FREE)
    step = decide_waiting(given, NOON)
    assert isinstance(step, WriteStatus)
    assert "at most 180 s" in step.status.blockers[0].message
    assert step.status.next_step == "is claimed when its agent has staged the image"
    waiting = with_status(given, step.status)
    assert isinstance(decide_waiting(waiting, later(1)), SetIntent)
    told = replace(waiting, node=node(intent=stage_intent(waiting)))
    looks = decide_waiting(told, later(179))
    assert isinstance(looks, Wait)
    assert looks.seconds <= 1
    late = decide_waiting(told, later(180))
    assert isinstance(late, WriteStatus)
    assert late.status.timeline[-1].reason == "NotStaged"
    full = with_status(replace(told, budget=replace(FREE, taken=("r01-u02-1",))), late.status)
    assert waits_for(full, 181) == ["Budget"]
    assert waits_for(with_status(replace(told, budget=FREE), late.status), 4000) == ["claimed"]


def test_jobs_are_warned_once_the_warning_time_before_their_deadline_begins_and_no_earlier() -> None:
    given = facts(by_deadline(7200), pool=pool(warning_seconds=600), work=Work(jobs=(job(),)), budget=FREE)
    first = decide_waiting(given, NOON)
    assert isinstance(first, WriteStatus)
    waiting = with_status(given, first.status)
    waiting = replace(waiting, node=node(intent=stage_intent(waiting)))
    assert decide_waiting(waiting, later(6590)) == Wait(seconds=10)
    due = decide_waiting(waiting, later(6600))
    assert isinstance(due, Wait)
    assert due.warn == later(7200)


def reworded(status: MaintenanceStatus) -> MaintenanceStatus:
    """As another release might word it, or another language."""
    return replace(status, timeline=tuple(replace(entry, message="…") for entry in status.timeline))


def test_what_is_on_record_is_read_by_its_fields_and_never_by_its_words() -> None:
    given = facts(budget=FREE, status={"blockers": (blocker("Agent", NODE),)})
    late = decide_waiting(given, later(180))
    assert isinstance(late, WriteStatus)
    assert waits_for(with_status(given, reworded(late.status)), 4000) == ["claimed"], "its agent was waited for once"
    first = effective(given, later(1))
    assert [entry.reason for entry in first.timeline] == ["Requested"]
    asked = with_status(given, reworded(first))
    assert effective(asked, later(2)).timeline == asked.maintenance.status.timeline, "what is recorded is not repeated"
    changed = replace(given.maintenance.spec.requestors[0], policy="Now")
    spec = replace(asked.maintenance.spec, requestors=(changed,))
    again = effective(replace(asked, maintenance=replace(asked.maintenance, spec=spec)), later(3))
    assert [entry.reason for entry in again.timeline] == ["Requested", "RequestChanged"]
    work = Work(evictable=("ml/a", "ml/b"))
    emptied = after_eviction(replace(given, work=work), (), later(4))
    assert isinstance(emptied, WriteStatus)
    assert emptied.status.timeline[-1].about == ("ml/a", "ml/b")
    more = replace(with_status(given, reworded(emptied.status)), work=Work(evictable=("ml/a", "ml/b", "ml/c")))
    later_on = after_eviction(more, (), later(5))
    assert isinstance(later_on, WriteStatus)
    assert later_on.status.timeline[-1].about == ("ml/c",), "nobody is said twice to have been asked"


def test_a_clock_that_is_set_back_makes_nobody_wait_for_hours() -> None:
    turn = {"blockers": (blocker("Maintenance", "r01-u02-1", since=9000),)}
    assert waits_for(staged(facts(budget=replace(FREE, before=("r01-u02-1",)), status=turn))) == ["claimed"]
    step = decide_waiting(facts(budget=FREE, status={"blockers": (blocker("Agent", NODE, since=9000),)}), later(60))
    assert isinstance(step, WriteStatus)
    assert step.status.timeline[-1].reason == "NotStaged"
    contended = TimelineEntry(time=rfc3339(later(9000)), phase="Waiting", reason="OverBudget", message="both")
    assert waits_for(staged(facts(budget=FREE, status={"timeline": (contended,)}))) == ["claimed"]


def with_status(given: MaintenanceFacts, status: Any) -> MaintenanceFacts:
    m = replace(given.maintenance, status=status)
    return replace(given, maintenance=m, wanted=merge(m))


def test_what_was_tried_at_an_earlier_claim_may_be_tried_again_whatever_the_clock_says() -> None:
    from tests.maintenance.situations import attempt

    given = staged(facts(budget=FREE, status={"attempts": (attempt("Kexec", began=9000, outcome="TimedOut"),)}))
    step = decide_waiting(given, later(60))
    assert isinstance(step, WriteStatus)
    assert step.status.attempts == ()


def test_a_pool_that_is_gone_is_not_asked_for_its_slurm_again_and_again() -> None:
    drain = SlurmDrain(node="r01-u01", reason="provisioner: r01-u01-1", node_pool_ref="gpu")
    given = facts(pool=None, status={"slurm": drain})
    for _ in range(4):
        step = decide_waiting(given, later(60))
        if not isinstance(step, WriteStatus):
            break
        given = with_status(given, step.status)
    assert isinstance(step, SetIntent | Wait)
    assert not isinstance(step, ReopenSlurm)


def test_a_boot_id_that_no_kernel_has_is_not_put_on_record() -> None:
    view = read_node({"metadata": {"name": "n"}, "status": {"nodeInfo": {"bootID": "x" * 5000}}})
    assert view is not None
    assert view.boot_id is None


def test_without_a_look_at_the_budget_nothing_is_claimed() -> None:
    assert isinstance(decide_waiting(staged(facts()), NOON), NeedBudget)
