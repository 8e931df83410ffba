"""What people ask of the executor, take back, ask twice or get wrong, against a real API server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from provisioner.api import Maintenance, Server
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.contract import (
    DRAIN_REQUESTED,
    HOLD_REQUESTED,
    POWER_CYCLE_REQUESTED,
    REBOOT_REQUESTED,
    REIMAGE_REQUESTED,
    REQUEST_REFUSED,
)
from provisioner.cluster.resources import of
from provisioner.maintenance.status.verdict import read_verdict
from tests.maintenance.executor_steps import PassedOn, finish, go_to_reboot
from tests.maintenance.fake_jobs import job
from tests.maintenance.plane import Plane


def test_a_withdrawn_condition_stops_what_has_not_begun(plane: Plane) -> None:
    plane.jobs.jobs = [job()]
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    plane.withdraw(REBOOT_REQUESTED)
    plane.work()
    assert plane.phase() == "Cancelled"
    assert plane.status().conditions[-1].reason == "Withdrawn"


def test_a_node_is_never_left_cordoned_whoever_deletes_the_maintenance(plane: Plane) -> None:
    plane.ask(DRAIN_REQUESTED)
    plane.work()
    assert (plane.phase(), plane.is_closed()) == ("Drained", True)
    plane.cluster.delete(of(Maintenance), f"{plane.name}-1")
    plane.work()
    assert not plane.is_closed()
    assert plane.condition(DRAIN_REQUESTED)["status"] == "False"
    assert plane.maintenances() == []


def test_a_cancelled_drain_does_not_reboot_later(plane: Plane) -> None:
    """The agent was deaf while it was told; what it was told is taken back before anything else."""
    go_to_reboot(plane)
    plane.order()
    plane.work()
    intent = plane.intent()
    assert intent is not None
    assert intent["action"] == "Kexec"
    plane.work(seconds=200)
    intent = plane.intent()
    assert intent is None or intent["id"] == plane.status().reboot.id  # type: ignore[union-attr]


def test_a_withdrawn_stage_is_taken_back(plane: Plane) -> None:
    plane.jobs.jobs = [job()]
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    intent = plane.intent()
    assert intent is not None
    assert (intent["action"], intent["image"]) == ("Stage", plane.image)
    plane.withdraw(REBOOT_REQUESTED)
    plane.work()
    assert plane.intent() is None


def test_two_requests_on_one_node_are_one_disturbance(plane: Plane) -> None:
    plane.jobs.jobs = [job()]
    plane.ask(REBOOT_REQUESTED)
    plane.ask(POWER_CYCLE_REQUESTED, "Now", "hangs")
    plane.work()
    status = plane.status()
    assert len(plane.maintenances()) == 1
    assert (status.action, status.policy) == ("PowerCycle", "Now")
    assert status.reboot is not None
    assert status.reboot.method == "PowerCycle"
    finish(plane)
    for type_ in (REBOOT_REQUESTED, POWER_CYCLE_REQUESTED):
        assert plane.condition(type_)["reason"] == "Completed"


@pytest.mark.parametrize(
    ("action", "ends"),
    [("Reimage", ("Completed", "DoneBefore")), ("Reboot", ("Rebooting", None)), ("PowerCycle", ("Rebooting", None))],
)
def test_a_request_that_comes_during_a_boot_is_done_by_it_if_it_asks_for_its_image_alone(
    plane: Plane, action: str, ends: tuple[str, str | None]
) -> None:
    go_to_reboot(plane)
    plane.now += timedelta(seconds=2)
    asked = {"name": "user-alice", "action": action, "policy": "Now", "requestedTime": rfc3339(plane.now)}
    plane.file(2, asked)
    plane.work(seconds=5)
    behind = plane.status()
    assert (behind.phase, behind.blockers[0].kind, behind.blockers[0].name) == (
        "Waiting",
        "Maintenance",
        f"{plane.name}-1",
    )
    plane.order()
    plane.work()
    plane.verify(plane.boot())
    plane.work()
    plane.work()
    first, second = plane.maintenances()
    assert (first.status.phase, first.status.conditions[-1].reason) == ("Completed", "Booted")
    verdict = read_verdict(second.status)
    assert (second.status.phase, verdict.cause if verdict is not None else None) == ends


def test_a_condition_that_is_set_again_during_a_boot_is_answered_by_another_boot(plane: Plane) -> None:
    go_to_reboot(plane)
    again = rfc3339(plane.now + timedelta(seconds=5))
    plane.ask(REBOOT_REQUESTED, "Now", "it hangs again", lastTransitionTime=again)
    plane.now += timedelta(seconds=5)
    finish(plane)
    plane.work()
    assert [m.status.phase for m in plane.maintenances()] == ["Completed", "Rebooting"]
    finish(plane)
    assert [m.status.phase for m in plane.maintenances()] == ["Completed", "Completed"]
    assert (plane.condition(REBOOT_REQUESTED)["status"], plane.condition(REBOOT_REQUESTED)["reason"]) == (
        "False",
        "Completed",
    )


def test_a_power_cycle_that_is_asked_for_now_during_a_boot_cuts_the_power_of_that_boot(plane: Plane) -> None:
    """The boot that was under way comes up between request and cut, and is not taken for the one that follows."""
    order = {"id": "order-before", "reason": "PowerLost", "orderedTime": rfc3339_micro(plane.now), "attempt": 1}
    plane.cluster.apply_status(Server, plane.name, {"order": order}, manager="provisioner-boot-controller")
    plane.ask(POWER_CYCLE_REQUESTED, "Now", "it hangs")
    plane.work()
    assert plane.phase() == "Rebooting"
    under_way = plane.boot()
    plane.verify(under_way)
    plane.work()
    status = plane.status()
    assert (status.phase, status.boot_id_before) == ("Rebooting", under_way)
    plane.order()
    plane.work()
    assert plane.phase() == "Rebooting"
    after = plane.boot()
    plane.work()
    plane.verify(after)
    plane.work()
    assert (plane.phase(), plane.status().boot_id_after) == ("Completed", after)


def test_another_image_is_not_merged_but_waits_its_turn(plane: Plane) -> None:
    plane.jobs.jobs = [job()]
    plane.file(1, {"name": "user-alice", "action": "Reimage", "imageRef": plane.other})
    plane.ask(REIMAGE_REQUESTED, "WhenIdle", f"image={plane.image}")
    plane.work()
    assert [m.status.image_ref for m in plane.maintenances()] == [plane.other, plane.image]
    assert plane.status().blockers[0].kind == "Maintenance"


def test_a_second_plain_request_long_after_the_first_is_not_taken_for_an_old_one(plane: Plane) -> None:
    """A strategic patch without a time leaves the time of our answer on the condition."""
    go_to_reboot(plane)
    finish(plane)
    plane.jobs.jobs = [job()]
    plane.now += timedelta(days=3)
    plane.ask(REBOOT_REQUESTED, "Deadline", "deadline=+30m")
    plane.work()
    assert [m.status.phase for m in plane.maintenances()] == ["Completed", "Waiting"]
    assert plane.status().deadline_time == rfc3339(plane.now + timedelta(minutes=30))


def test_a_stale_condition_that_somebody_writes_back_does_nothing(plane: Plane) -> None:
    asked = rfc3339(plane.now - timedelta(minutes=1))
    plane.ask(REBOOT_REQUESTED, lastTransitionTime=asked)
    plane.work()
    finish(plane)
    plane.ask(REBOOT_REQUESTED, lastTransitionTime=asked)
    plane.work()
    assert len(plane.maintenances()) == 1
    assert (plane.condition(REBOOT_REQUESTED)["status"], plane.condition(REBOOT_REQUESTED)["reason"]) == (
        "False",
        "Stale",
    )


def test_what_is_not_understood_is_refused_on_the_node_and_nothing_is_done(plane: Plane) -> None:
    plane.ask(REBOOT_REQUESTED, "Deadline", "deadline=2026-02-30T18:00:00Z")
    plane.work()
    refused = plane.condition(REQUEST_REFUSED)
    assert refused["status"] == "True"
    assert "deadline=2026-02-30T18:00:00Z" in refused["message"]
    assert plane.maintenances() == []
    assert "RequestRefused" in plane.events.reasons("Node")
    plane.ask(REBOOT_REQUESTED, "Deadline", "deadline=+1h")
    plane.jobs.jobs = [job()]
    plane.work()
    assert plane.condition(REQUEST_REFUSED)["status"] == "False"
    assert len(plane.maintenances()) == 1


def test_a_held_node_is_not_disturbed_and_goes_back_if_it_was_claimed(plane: Plane) -> None:
    from provisioner.jobs.model.work import EvictionBlocked

    plane.jobs.jobs = [job()]
    plane.jobs.held = (EvictionBlocked(kind="Pod", name="ml/training", message="is ending"),)
    plane.ask(REBOOT_REQUESTED, "Now")
    plane.work()
    assert plane.phase() == "Draining"
    plane.set_condition({"type": HOLD_REQUESTED, "status": "True"})
    plane.work()
    assert (plane.phase(), plane.is_closed()) == ("Waiting", False)
    assert [b.kind for b in plane.status().blockers] == ["Hold"]


def test_a_withdrawal_after_the_reboot_began_is_carried_to_its_end(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.withdraw(REBOOT_REQUESTED)
    finish(plane)
    assert plane.phase() == "Completed"


def test_a_drain_is_kept_through_a_reboot_and_ends_when_it_is_withdrawn(plane: Plane) -> None:
    plane.ask(DRAIN_REQUESTED)
    plane.work()
    assert plane.phase() == "Drained"
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    finish(plane)
    assert (plane.phase(), plane.is_closed()) == ("Drained", True)
    plane.withdraw(DRAIN_REQUESTED)
    plane.work()
    assert (plane.phase(), plane.is_closed()) == ("Completed", False)


def test_a_request_that_the_api_server_refuses_does_not_hold_up_what_is_under_way(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.ask(DRAIN_REQUESTED)

    class Refusing(PassedOn):
        def create(self, type_: Any, body: Any, **more: Any) -> Any:
            raise Refused("a policy forbids it", hint="ask somebody who may")

    plane.executor = plane.start(Refusing(plane.client))
    finish(plane)
    assert [m.status.phase for m in plane.maintenances()] == ["Completed"]
    assert "RequestRefused" in plane.events.reasons("Node")


def test_conditions_that_another_tool_sets_are_not_taken_for_our_own(plane: Plane) -> None:
    foreign = {"type": "MaintenanceInProgress", "status": "True", "reason": "Firmware", "message": "by another tool"}
    plane.set_condition(foreign)
    plane.work()
    assert plane.condition("MaintenanceInProgress")["status"] == "True"


def test_the_seventeenth_who_asks_gets_a_maintenance_of_its_own(plane: Plane) -> None:
    plane.jobs.jobs = [job()]
    plane.file(1, *({"name": f"user-{n}", "action": "Reboot", "message": "x" * 1024} for n in range(16)))
    plane.ask(REBOOT_REQUESTED, "WhenIdle", "y" * 4096)
    plane.work()
    assert [len(m.spec.requestors) for m in plane.maintenances()] == [16, 1]
    assert [b.kind for b in plane.status().blockers] == ["Maintenance"]
    assert len(plane.maintenances()[0].status.timeline) == 16
