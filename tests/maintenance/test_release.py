"""Which requests the end of a Maintenance answers, by the whole seconds that a condition carries."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api.machinery.meta import Condition, rfc3339
from provisioner.api.nodes.contract import REBOOT_REQUESTED
from provisioner.maintenance.model.steps import SetNodeConditions
from provisioner.maintenance.phases.release import decide_release
from provisioner.maintenance.status.verdict import Verdict
from tests.maintenance.samples import NOON, requestor
from tests.maintenance.situations import facts, later, node

DECIDED = 100


def answers(set_at: float | None) -> bool:
    """Whether a request of noon, whose condition was set (again) at that second, is answered by a verdict."""
    condition: dict[str, Any] = {"type": REBOOT_REQUESTED, "status": "True", "reason": "WhenIdle", "message": ""}
    if set_at is not None:
        condition["lastTransitionTime"] = rfc3339(later(set_at))
    verdict = Verdict(cause="Booted", phase="Completed", message="done", time=rfc3339(later(DECIDED)))
    succeeded = Condition(
        type="Succeeded", status="True", reason="Booted", message="done", last_transition_time=verdict.time
    )
    situation = facts(
        requestor("condition-reboot", requested_time=rfc3339(NOON)),
        status={"phase": "Verifying", "conditions": (succeeded,)},
        node=node(conditions=(condition,)),
    )
    step = decide_release(situation, verdict, later(DECIDED))
    return isinstance(step, SetNodeConditions) and any(c.type == REBOOT_REQUESTED for c in step.conditions)


@pytest.mark.parametrize(
    "set_at", [0, None, 50, DECIDED - 1], ids=["as taken in", "without a time", "meanwhile", "just before"]
)
def test_a_request_that_was_there_before_the_verdict_is_answered_by_it(set_at: float | None) -> None:
    assert answers(set_at)


@pytest.mark.parametrize("set_at", [DECIDED, DECIDED + 1], ids=["in its second", "a second later"])
def test_a_request_that_is_set_again_as_the_verdict_falls_is_a_new_one(set_at: float) -> None:
    assert not answers(set_at)
