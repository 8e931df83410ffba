"""From request conditions to requestors, as a table: what the Node says, what is filed. Each row is a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api import Maintenance
from provisioner.api.machinery.meta import Condition, rfc3339
from provisioner.api.nodes.contract import (
    DRAIN_REQUESTED,
    POWER_CYCLE_REQUESTED,
    REBOOT_REQUESTED,
    REIMAGE_REQUESTED,
    REQUEST_REFUSED,
)
from provisioner.maintenance.requests.intake import FileRequestor, Intake, SetConditions, Withdraw, take_in
from tests.maintenance.samples import NOON, at, maintenance, requestor
from tests.maintenance.situations import attempt, later, node


def asked(type_: str = REBOOT_REQUESTED, reason: str = "WhenIdle", message: str = "", **more: Any) -> dict[str, Any]:
    return {"type": type_, "status": "True", "reason": reason, "message": message, **more}


def held(number: int = 1, *more: Any, **status: Any) -> Maintenance:
    """It answers RebootRequested, as it was filed."""
    mine = requestor("condition-reboot", requested_time=rfc3339(NOON))
    return maintenance(number, mine, *more, **{"phase": "Waiting", **status})


def going(m: Maintenance) -> Maintenance:
    """Somebody has deleted it."""
    return replace(m, metadata=replace(m.metadata, deletion_timestamp=at(5)))


def ended(cause: str = "Booted", *, when: float = 100) -> Maintenance:
    verdict = Condition(
        type="Succeeded", status="True", reason=cause, message="done", last_transition_time=rfc3339(later(when))
    )
    return held(1, phase="Completed", conditions=(verdict,), finished_time=at(when))


def words(intake: Intake | None) -> str:
    match intake:
        case None:
            return "nothing"
        case FileRequestor(requestor=who, target=target):
            image = f" to {who.image_ref}" if who.image_ref else ""
            deadline = f" {who.deadline_time}" if who.deadline_time else ""
            into = target.name if target is not None else "a new one"
            return f"{who.name}: {who.action}{image}, {who.policy}{deadline}, into {into}"
        case Withdraw(requestor=name, target=target):
            return f"{name} out of {target.name}"
        case SetConditions(conditions=conditions):
            return ", ".join(f"{c.type.rpartition('/')[2]} {c.status} ({c.reason})" for c in conditions)


SIXTEEN = tuple(requestor(f"user-{n}") for n in range(16))
JUDGED = Condition(type="Succeeded", status="False", reason="Deleted", message="x", last_transition_time=at(50))
BEGUN = {"phase": "Rebooting", "reboot": attempt()}
Row = tuple[tuple[dict[str, Any], ...], tuple[Maintenance, ...], str]
ROWS: dict[str, Row] = {
    "a Node that asks for nothing is left alone": ((), (), "nothing"),
    "a request is filed": ((asked(),), (), "condition-reboot: Reboot, WhenIdle, into a new one"),
    "without a reason it is patient": (
        ({"type": REBOOT_REQUESTED, "status": "True"},),
        (),
        "condition-reboot: Reboot, WhenIdle, into a new one",
    ),
    "a request with an image and a time is filed with both": (
        (asked(REIMAGE_REQUESTED, "Deadline", "image=new-1 deadline=+30m", lastTransitionTime=rfc3339(NOON)),),
        (),
        "condition-reimage: Reimage to new-1, Deadline 2026-01-02T12:30:00Z, into a new one",
    ),
    "a relative deadline counts from the request, not from when it was read": (
        (asked(REBOOT_REQUESTED, "Deadline", "deadline=+30m", lastTransitionTime=rfc3339(later(-600))),),
        (),
        "condition-reboot: Reboot, Deadline 2026-01-02T12:20:00Z, into a new one",
    ),
    "one of a clock that is far ahead counts from when it was read": (
        (asked(REBOOT_REQUESTED, "Deadline", "deadline=+30m", lastTransitionTime=rfc3339(later(86400))),),
        (),
        "condition-reboot: Reboot, Deadline 2026-01-02T12:30:10Z, into a new one",
    ),
    "a request joins the one that waits": (
        (asked(POWER_CYCLE_REQUESTED),),
        (maintenance(1, requestor(), phase="Waiting"),),
        "condition-power-cycle: PowerCycle, WhenIdle, into r01-u01-1",
    ),
    "one for another image does not": (
        (asked(REIMAGE_REQUESTED, message="image=new-1"),),
        (maintenance(1, requestor(image_ref="new-2", action="Reimage"), phase="Waiting"),),
        "condition-reimage: Reimage to new-1, WhenIdle, into a new one",
    ),
    "nor does one that comes after the reboot began": (
        (asked(POWER_CYCLE_REQUESTED),),
        (maintenance(1, requestor(), **BEGUN),),
        "condition-power-cycle: PowerCycle, WhenIdle, into a new one",
    ),
    "nor the seventeenth": (
        (asked(),),
        (maintenance(1, *SIXTEEN, phase="Waiting"),),
        "condition-reboot: Reboot, WhenIdle, into a new one",
    ),
    "nor one that comes while the first is deleted": (
        (asked(),),
        (going(maintenance(1, requestor(), phase="Waiting")),),
        "condition-reboot: Reboot, WhenIdle, into a new one",
    ),
    "what is filed is not filed again": ((asked(),), (held(),), "nothing"),
    "changed words change the requestor": (
        (asked(reason="Now"),),
        (held(),),
        "condition-reboot: Reboot, Now, into r01-u01-1",
    ),
    "not once the reboot has begun": ((asked(reason="Now"),), (held(**BEGUN),), "nothing"),
    "another image moves it to a Maintenance of its own": (
        (asked(message="image=new-1"),),
        (
            held(
                1,
                requestor("user-bob", image_ref="new-2"),
            ),
        ),
        "condition-reboot out of r01-u01-1",
    ),
    "a withdrawn request is taken out": ((), (held(),), "condition-reboot out of r01-u01-1"),
    "also when it says False": (
        ({"type": REBOOT_REQUESTED, "status": "False"},),
        (held(),),
        "condition-reboot out of r01-u01-1",
    ),
    "of two of a type the last True one counts": (
        (asked(reason="Now"), asked(reason="WhenIdle"), {"type": REBOOT_REQUESTED, "status": "False"}),
        (),
        "condition-reboot: Reboot, WhenIdle, into a new one",
    ),
    "who asked stays on record where the end is decided": ((), (held(conditions=(JUDGED,)),), "nothing"),
    "a request from before the last end is stale": (
        (asked(lastTransitionTime=at(10)),),
        (ended(),),
        "RebootRequested False (Stale)",
    ),
    "a request from after it is a new one": (
        (asked(lastTransitionTime=at(101)),),
        (ended(),),
        "condition-reboot: Reboot, WhenIdle, into a new one",
    ),
    "one without a time is a new one": (
        (asked(),),
        (ended(),),
        "condition-reboot: Reboot, WhenIdle, into a new one",
    ),
    "one that leaves the time of our answer is a new one": (
        (asked(lastTransitionTime=at(100)),),
        (ended(),),
        "condition-reboot: Reboot, WhenIdle, into a new one",
    ),
    "what is not understood is refused": ((asked(reason="Soon"),), (), "RequestRefused True (NotUnderstood)"),
    "what is not understood any more is taken out first": (
        (asked(reason="Soon"),),
        (held(),),
        "condition-reboot out of r01-u01-1",
    ),
    "what is not understood does not hold up the others": (
        (asked(reason="Soon"), asked(DRAIN_REQUESTED)),
        (),
        "condition-drain: Drain, WhenIdle, into a new one",
    ),
    "a refusal is taken back once all is understood": (
        (asked(), {"type": REQUEST_REFUSED, "status": "True", "reason": "NotUnderstood"}),
        (held(),),
        "RequestRefused False (Understood)",
    ),
    "nonsense among the conditions is passed over": (
        ({"type": 7, "status": "True"}, {"type": REBOOT_REQUESTED, "status": "True", "reason": 5, "message": None}),
        (),
        "condition-reboot: Reboot, WhenIdle, into a new one",
    ),
}


@pytest.mark.parametrize("sentence", ROWS)
def test_a_request(sentence: str) -> None:
    conditions, maintenances, expected = ROWS[sentence]
    assert words(take_in(node(conditions=conditions), maintenances, later(10))) == expected


def test_a_node_that_is_gone_takes_its_requests_with_it_unless_the_reboot_has_begun() -> None:
    assert words(take_in(None, [held()], NOON)) == "condition-reboot out of r01-u01-1"
    assert words(take_in(None, [held(**BEGUN)], NOON)) == "nothing"


def test_a_huge_message_is_filed_as_much_of_it_as_there_is_room_for() -> None:
    filed = take_in(node(conditions=(asked(message="ä" * 100_000),)), [], NOON)
    assert isinstance(filed, FileRequestor)
    assert filed.requestor.message == "ä" * 1024
    existing = replace(held(), spec=replace(held().spec, requestors=(filed.requestor,)))
    assert take_in(node(conditions=(asked(message="ä" * 100_000),)), [existing], later(10)) is None
