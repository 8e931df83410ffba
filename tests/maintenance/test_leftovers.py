"""What a Maintenance that is gone has left on a Node, and what somebody else has set there under the same names."""

from __future__ import annotations

from typing import Any

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import DRAIN_IN_PROGRESS, MAINTENANCE_PLANNED
from provisioner.api.nodes.facts import BootIntent
from provisioner.maintenance.model.steps import SetIntent, SetNodeConditions, SetTaint
from provisioner.maintenance.phases.release import find_leftover
from tests.maintenance.plane import Plane
from tests.maintenance.situations import BOOT, DIGEST, NODE, node


def said(type_: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": type_, "status": "True", "reason": reason, "message": message}


def test_first_goes_what_the_agent_might_obey_then_the_taint() -> None:
    intent = BootIntent(id="try-1", action="Reboot", boot_id_before=BOOT, image="i", image_digest=DIGEST)
    assert find_leftover(node(intent=intent, taint="gone")) == SetIntent(intent=None)
    assert find_leftover(node(taint="gone")) == SetTaint(value=None)
    assert find_leftover(node(taint="gone"), keeps_taint=True) is None


def test_a_condition_of_ours_is_taken_back_by_its_reason_in_whichever_words_it_is() -> None:
    planned = said(MAINTENANCE_PLANNED, "Draining", "Wartung geplant")
    step = find_leftover(node(conditions=(planned,)))
    assert isinstance(step, SetNodeConditions)
    assert [(c.type, c.status, c.reason) for c in step.conditions] == [(MAINTENANCE_PLANNED, "False", "NoMaintenance")]


def test_a_condition_that_another_tool_set_stays_whatever_its_words() -> None:
    theirs = (
        said(DRAIN_IN_PROGRESS, "AdminRequested", f"Maintenance {NODE}-7: by the data centre"),
        said(MAINTENANCE_PLANNED, "MaintenanceWindow", "on Sunday"),
    )
    assert find_leftover(node(conditions=theirs)) is None


def test_who_sets_it_again_after_it_was_taken_back_is_another_tool_and_keeps_it(plane: Plane) -> None:
    planned = {**said(MAINTENANCE_PLANNED, "Draining", "Wartung geplant"), "lastTransitionTime": rfc3339(plane.now)}
    for expected in ("False", "True"):
        plane.set_condition(planned)
        plane.work(seconds=60)
        assert plane.condition(MAINTENANCE_PLANNED)["status"] == expected
