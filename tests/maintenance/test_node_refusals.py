"""What is decided where the API server does not take what is to be written to a Node. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.facts import BootIntent
from provisioner.api.nodes.maintenance import RELEASE_FINALIZER, MaintenanceStatus
from provisioner.maintenance.decide import decide
from provisioner.maintenance.model.budget import Budget
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.node_refusals import (
    LAST_RETRY_SECONDS,
    LASTING_SECONDS,
    NodeRefusals,
    NodeWriteRefusal,
)
from provisioner.maintenance.model.steps import (
    NodeWrite,
    SetIntent,
    SetNodeConditions,
    SetTaint,
    Step,
    Wait,
    WriteStatus,
)
from provisioner.maintenance.status.record import judge
from tests.maintenance.samples import NOON, requestor
from tests.maintenance.situations import facts, later, node
from tests.maintenance.test_rebooting import trying

WORDS = "PATCH Node r01-u01: it is full"


def refused(write: NodeWrite, since: float, again: float, count: int = 9) -> dict[NodeWrite, NodeWriteRefusal]:
    return {write: NodeWriteRefusal(words=WORDS, since=later(since), again=later(again), count=count)}


def finalized(found: MaintenanceFacts) -> MaintenanceFacts:
    metadata = replace(found.maintenance.metadata, finalizers=(RELEASE_FINALIZER,))
    return replace(found, maintenance=replace(found.maintenance, metadata=metadata))


def claiming(**changes: Any) -> MaintenanceFacts:
    found = facts(requestor("user-ada", "Drain", policy="Now"), **changes)
    return finalized(replace(found, budget=Budget(allowed=1, taken=(), fresh=True)))


def play(found: MaintenanceFacts, now: datetime, ends: datetime) -> list[tuple[datetime, Step]]:
    """What is written to the Maintenance until then, while the API server takes nothing of the Node."""
    refusals, written = NodeRefusals(), []
    for _ in range(5000):
        if now >= ends:
            return written
        step = decide(replace(found, refused=refusals.of("r01-u01")), now)
        match step:
            case WriteStatus(status=status):
                written.append((now, step))
                if status.phase != found.maintenance.status.phase:
                    refusals.forget("r01-u01")
                found = replace(found, maintenance=replace(found.maintenance, status=status))
            case SetTaint():
                refusals.note("r01-u01", "Taint", WORDS, now)
            case SetNodeConditions():
                refusals.note("r01-u01", "Conditions", WORDS, now)
            case Wait(seconds=seconds):
                now += timedelta(seconds=seconds)
            case _:
                raise AssertionError(step)
    raise AssertionError("it does not come to rest")


def last_status(written: list[tuple[datetime, Step]]) -> MaintenanceStatus:
    step = written[-1][1]
    assert isinstance(step, WriteStatus)
    return step.status


def test_a_claim_that_is_refused_is_given_up_in_time_and_made_again_less_and_less_often() -> None:
    timeline = last_status(play(claiming(), NOON, later(7200))).timeline
    claims = [parse_time(e.time) for e in timeline if e.reason == "Claimed"]
    ends = [parse_time(e.time) for e in timeline if e.reason == "NodeRefused" and e.phase == "Waiting"]
    assert len(claims) >= 6
    lasted = [end - claim for claim, end in zip(claims, ends, strict=False)]
    assert max(lasted) <= timedelta(seconds=LASTING_SECONDS + LAST_RETRY_SECONDS)
    pauses = [(after - before).total_seconds() for before, after in pairwise(claims)]
    assert all(longer > 1.4 * shorter for shorter, longer in pairwise(pauses[:5]))
    assert max(pauses) <= 1800 + 60 + LASTING_SECONDS + LAST_RETRY_SECONDS


def test_each_moment_of_a_refused_claim_says_why() -> None:
    written = [step.status for _, step in play(claiming(), NOON, later(600)) if isinstance(step, WriteStatus)]
    silent = [status for status in written if WORDS not in " ".join(b.message for b in status.blockers)]
    assert [(status.phase, status.timeline[-1].reason) for status in silent] == [("Claiming", "Claimed")] * 4
    assert {status.phase for status in written if status not in silent} == {"Claiming", "Waiting"}


def test_what_is_refused_for_a_moment_is_only_tried_again() -> None:
    found = claiming(status={"phase": "Claiming"}, node=node(), refused=refused("Taint", 0, 2, count=1))
    first = decide(found, later(1))
    assert isinstance(first, WriteStatus)
    assert (first.status.phase, [b.kind for b in first.status.blockers]) == ("Claiming", ["Node"])
    told = replace(found, maintenance=replace(found.maintenance, status=first.status))
    assert isinstance(decide(told, later(1)), Wait)
    assert isinstance(decide(told, later(2)), SetTaint)


def test_one_that_met_another_writer_is_not_said_to_be_refused() -> None:
    found = claiming(status={"phase": "Claiming"}, node=node(), refused=refused("Taint", 0, 0, count=1))
    assert isinstance(decide(found, later(1)), SetTaint)


def test_words_that_a_node_does_not_take_hold_nothing_up() -> None:
    found = claiming(refused=refused("Conditions", 0, 30, count=1))
    assert not isinstance(decide(found, later(1)), SetNodeConditions)


def test_an_agent_that_cannot_be_told_is_followed_by_the_next_method() -> None:
    now = later(40)
    found = trying("Reboot", refused=refused("Intent", 0, 41))
    step = decide(finalized(found), now)
    assert isinstance(step, WriteStatus)
    assert step.status.reboot is not None
    assert (step.status.reboot.outcome, WORDS in (step.status.reboot.message or "")) == ("Failed", True)


def test_an_agent_that_cannot_be_told_just_now_is_told_once_that_may_be_tried_again() -> None:
    given = finalized(trying())
    for again, is_told in ((40, False), (30, True)):
        step = decide(replace(given, refused=refused("Intent", since=25, again=again)), later(30))
        assert isinstance(step, SetIntent) is is_told


def test_a_power_cycle_needs_nothing_of_the_node() -> None:
    found = trying("PowerCycle", node=node(), refused=refused("Taint", 0, 41) | refused("Intent", 0, 41))
    assert not isinstance(decide(finalized(found), later(40)), SetTaint | SetIntent)


@pytest.mark.parametrize("told", [False, True], ids=["nothing told", "told to reboot"])
def test_an_end_holds_its_slot_only_where_the_agent_may_still_reboot(told: bool) -> None:
    found = trying("Reboot", refused=refused("Taint", 0, 41))
    intent = BootIntent(id="try-1", action="Reboot", boot_id_before="boot-1", image="i", image_digest="d")
    over = judge(found.maintenance, "RebootFailed", "in words", NOON)
    found = replace(
        found,
        maintenance=replace(found.maintenance, status=over),
        node=node(taint="r01-u01-1", intent=intent if told else None),
    )
    step = decide(finalized(found), later(40))
    assert isinstance(step, WriteStatus)
    assert step.status.phase == ("Rebooting" if told else "Failed")
    assert [b.kind for b in step.status.blockers] == (["Node"] if told else [])
