"""The executor against a real API server: the whole way, and each fault that others have met on it."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import Any

import pytest

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.errors import Conflict, Refused
from provisioner.api.meta import rfc3339
from provisioner.api.node_contract import (
    DRAIN_REQUESTED,
    HOLD_REQUESTED,
    MAINTENANCE_TAINT,
    POWER_CYCLE_REQUESTED,
    REBOOT_REQUESTED,
    REIMAGE_REQUESTED,
    REQUEST_REFUSED,
)
from provisioner.api.pool_settings import SlurmJobs
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from provisioner.node import intent as agent
from tests.maintenance.fake_jobs import job
from tests.maintenance.plane import OTHER_DIGEST, Plane


@pytest.fixture
def plane(cluster: Cluster, unique: str) -> Plane:
    return Plane(cluster, unique)


def go_to_reboot(plane: Plane) -> None:
    """Ask, and let it come to the first try."""
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    assert plane.phase() == "Rebooting"


def finish(plane: Plane) -> None:
    plane.order()
    plane.work()
    plane.verify(plane.boot())
    plane.work()


def test_a_condition_leads_to_a_proved_reboot_and_is_answered(plane: Plane) -> None:
    plane.ask(REBOOT_REQUESTED, "WhenIdle", "new kernel")
    plane.work()
    assert plane.condition("MaintenanceInProgress")["status"] == "True"
    finish(plane)
    status = plane.status()
    assert (status.phase, status.reboot.outcome if status.reboot else None) == ("Completed", "Booted")
    assert (plane.is_closed(), plane.intent()) == (False, None)
    answer = plane.condition(REBOOT_REQUESTED)
    assert (answer["status"], answer["reason"]) == ("False", "Completed")
    assert "is Ready and has passed its checks" in answer["message"]
    assert plane.condition("MaintenanceInProgress")["status"] == "False"
    reasons = [e.reason for e in status.timeline]
    assert reasons == [
        "Requested",
        "Claimed",
        "Closed",
        "DrainStarted",
        "Drained",
        "RebootStarted",
        "BootSeen",
        "Booted",
        "Completed",
    ]
    assert set(reasons) <= set(plane.events.reasons("Node"))
    assert set(reasons) <= set(plane.events.reasons("Maintenance"))
    assert status.timeline[0].message == "condition-reboot: Reboot, WhenIdle: new kernel"


def test_nothing_happens_to_a_job_under_when_idle_and_the_blocker_keeps_its_time(plane: Plane) -> None:
    plane.jobs.jobs = [job("ml/training")]
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    first = plane.status().blockers
    plane.work(seconds=7200)
    status = plane.status()
    assert status.phase == "Waiting"
    assert [(b.kind, b.name) for b in first] == [("Pod", "ml/training")]
    assert status.blockers == first
    assert status.next_step == "is claimed when its jobs have ended"
    assert (plane.jobs.evicted, plane.is_closed()) == ([], False)


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


def test_a_taint_whose_maintenance_is_gone_is_taken_off(plane: Plane) -> None:
    taint = {"key": MAINTENANCE_TAINT, "value": "long-gone", "effect": "NoSchedule"}
    plane.patch_node({"spec": {"taints": [taint, {"key": "mine", "effect": "NoSchedule"}]}})
    plane.work()
    assert plane.taints() == ["mine"]


def test_a_foreign_cordon_and_foreign_taints_are_never_lifted(plane: Plane) -> None:
    foreign = {"key": "example.com/mine", "effect": "NoSchedule"}
    plane.patch_node({"spec": {"unschedulable": True, "taints": [foreign]}})
    go_to_reboot(plane)
    finish(plane)
    spec = plane.node()["spec"]
    assert plane.phase() == "Completed"
    assert spec["unschedulable"] is True
    assert "example.com/mine" in plane.taints()


def test_a_foreign_drain_in_slurm_stays(cluster: Cluster, unique: str) -> None:
    plane = Plane(cluster, unique)
    with_slurm(plane)
    plane.jobs.drain = "bad DIMM"
    go_to_reboot(plane)
    finish(plane)
    assert (plane.phase(), plane.jobs.drain) == ("Completed", "bad DIMM")


def test_our_drain_in_slurm_is_lifted_also_when_the_crash_came_before_its_record(cluster: Cluster, unique: str) -> None:
    plane = Plane(cluster, unique)
    with_slurm(plane)
    plane.ask(REBOOT_REQUESTED)
    dying = DyingCluster(cluster, "Closed")
    plane.executor = plane.start(dying)
    with pytest.raises(SimulatedCrash):
        plane.work()
    assert plane.jobs.drain == f"provisioner: {plane.name}-1"
    assert "Closed" not in [e.reason for e in plane.status().timeline]
    plane.withdraw(REBOOT_REQUESTED)
    plane.executor = plane.start()
    plane.work()
    assert (plane.phase(), plane.jobs.drain) == ("Cancelled", None)


def test_a_vanished_node_gives_its_slot_back(cluster: Cluster, unique: str) -> None:
    plane = Plane(cluster, unique, servers=2)
    first, second = plane.names
    plane.ask(DRAIN_REQUESTED, name=first)
    plane.work(first)
    plane.ask(REBOOT_REQUESTED, name=second)
    plane.work(second)
    assert [b.kind for b in plane.status(second).blockers] == ["Budget"]
    plane.cluster.delete(NODES, first)
    plane.work(first)
    assert (plane.phase(first), plane.status(first).conditions[-1].reason) == ("Failed", "NodeGone")
    plane.work(second)
    assert plane.phase(second) == "Rebooting"


def test_a_node_that_cannot_be_emptied_gives_its_slot_back_after_its_time(plane: Plane) -> None:
    from provisioner.jobs.work import Held

    plane.file(1, {"name": "user-alice", "action": "Reboot", "policy": "Now"})
    plane.jobs.jobs = [job("web/front")]
    plane.jobs.held = (Held(kind="PodDisruptionBudget", name="web/front", message="its budget forbids it"),)
    plane.work()
    assert [(b.kind, b.name) for b in plane.status().blockers] == [("PodDisruptionBudget", "web/front")]
    plane.work(seconds=3601)
    assert (plane.phase(), plane.is_closed()) == ("Failed", False)
    assert "held up by PodDisruptionBudget web/front" in plane.status().timeline[-1].message


def test_after_a_restart_the_same_server_goes_on_and_no_other_is_picked(cluster: Cluster, unique: str) -> None:
    plane = Plane(cluster, unique, servers=2)
    for name in plane.names:
        plane.ask(REBOOT_REQUESTED, name=name)
    plane.work(plane.names[1])
    plane.executor = plane.start()
    for name in plane.names:
        plane.work(name)
    assert [plane.phase(name) for name in plane.names] == ["Waiting", "Rebooting"]


def test_there_is_no_reboot_loop_each_path_is_tried_once(plane: Plane) -> None:
    go_to_reboot(plane)
    methods = []
    for _ in range(8):
        if plane.phase() != "Rebooting":
            break
        attempt = plane.status().reboot
        assert attempt is not None
        methods.append(attempt.method)
        plane.order()
        plane.work()
        plane.work(seconds=1000)
    assert methods == ["Kexec", "Reboot", "Reset", "PowerCycle"]
    status = plane.status()
    assert (status.phase, plane.is_closed(), plane.intent()) == ("Failed", False, None)
    assert [a.outcome for a in status.attempts] == ["TimedOut"] * 4
    assert plane.condition(REBOOT_REQUESTED)["reason"] == "Failed"


def test_a_reboot_too_fast_to_be_seen_not_ready_is_seen_by_its_boot_id(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.order()
    plane.work()
    before = plane.status().boot_id_before
    boot_id = plane.boot()  # Ready was never anything but True
    plane.work()
    plane.verify(boot_id)
    plane.work()
    assert (plane.phase(), plane.status().boot_id_after) == ("Completed", boot_id)
    assert boot_id != before


def test_ready_alone_proves_nothing(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.order()
    plane.verify(plane.status().boot_id_before or "")
    plane.work(seconds=60)
    assert plane.phase() == "Rebooting"


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


def test_one_broken_node_does_not_halt_everything(cluster: Cluster, unique: str) -> None:
    plane = Plane(cluster, unique, servers=3)
    broken, first, second = plane.names
    plane.cluster.strategic_patch(
        NODES, broken, {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, subresource="status"
    )
    plane.ask(REBOOT_REQUESTED, name=first)
    plane.work(first)
    assert plane.phase(first) == "Rebooting"
    for _ in range(4):
        plane.work(first, seconds=1000)
    assert plane.phase(first) == "Failed"
    plane.ask(REBOOT_REQUESTED, name=second)
    plane.work(second)
    assert plane.phase(second) == "Rebooting"


def test_the_next_node_does_not_start_before_the_last_is_back_and_verified(cluster: Cluster, unique: str) -> None:
    plane = Plane(cluster, unique, servers=2)
    first, second = plane.names
    for name in plane.names:
        plane.ask(REBOOT_REQUESTED, name=name)
    plane.work(first)
    plane.order(first)
    plane.work(first)
    boot_id = plane.boot(name=first)
    for _ in range(3):
        plane.work(first)
        plane.work(second)
    assert [plane.phase(name) for name in plane.names] == ["Verifying", "Waiting"]
    plane.verify(boot_id, first)
    plane.work(first)
    plane.work(second)
    assert [plane.phase(name) for name in plane.names] == ["Completed", "Rebooting"]


def test_two_that_claim_at_the_same_moment_both_stand_back(cluster: Cluster, unique: str) -> None:
    plane = Plane(cluster, unique, servers=2)
    first, second = plane.names
    for name in plane.names:
        plane.ask(REBOOT_REQUESTED, "Now", name=name)
    blind = BlindCluster(cluster)  # two leaders: each read the budget before the other wrote its claim
    for name in plane.names:
        with pytest.raises(SimulatedCrash):
            plane.start(blind).reconcile(name)
    assert [plane.phase(name) for name in plane.names] == ["Claiming", "Claiming"]
    plane.work(first)
    assert not plane.is_closed(first) or not plane.is_closed(second)
    plane.work(second)
    plane.work(first, seconds=10)
    disturbed = [n for n in plane.names if plane.phase(n) not in ("Waiting", "Completed")]
    assert len(disturbed) == 1


@pytest.mark.parametrize("kind", ["Pod", "PodGroup", "SlurmJob"])
def test_a_job_that_starts_between_check_and_taint_goes_on_and_is_waited_for(plane: Plane, kind: Any) -> None:
    def slip_in(look: int) -> None:
        if plane.is_closed():
            plane.jobs.jobs = [job("ml/late", kind)]

    plane.jobs.before_look = slip_in
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    plane.jobs.before_look = lambda look: None
    assert plane.phase() == "Waiting"
    assert (plane.is_closed(), plane.jobs.evicted) == (False, [])
    assert "JobStarted" in [e.reason for e in plane.status().timeline]
    assert [(b.kind, b.name) for b in plane.status().blockers] == [(kind, "ml/late")]
    plane.jobs.jobs = []
    plane.work(seconds=60)
    assert plane.phase() == "Rebooting"


def test_a_wrong_image_is_rebooted_once_more_by_the_next_path_then_it_fails(plane: Plane) -> None:
    go_to_reboot(plane)
    for expected in ("Kexec", "Reboot"):
        assert plane.status().reboot.method == expected  # type: ignore[union-attr]
        plane.order()
        plane.work()
        plane.boot(OTHER_DIGEST)
        plane.work()
        plane.work()
    status = plane.status()
    assert (status.phase, status.conditions[-1].reason) == ("Failed", "WrongImage")
    assert [a.outcome for a in status.attempts] == ["WrongImage", "WrongImage"]
    assert not plane.is_closed()


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


def test_a_request_that_comes_after_the_boot_began_waits_and_is_done_by_that_boot(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.file(2, {"name": "user-alice", "action": "Reboot", "requestedTime": rfc3339(plane.now)})
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
    assert [(m.status.phase, m.status.conditions[-1].reason) for m in plane.maintenances()] == [
        ("Completed", "Booted"),
        ("Completed", "DoneBefore"),
    ]


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


def test_a_deadline_warns_first_and_evicts_only_then(cluster: Cluster, unique: str) -> None:
    plane = Plane(cluster, unique, warning_seconds=600)
    plane.jobs.jobs = [job()]
    plane.ask(REBOOT_REQUESTED, "Deadline", "deadline=+60m")
    plane.work()
    plane.work(seconds=2990)
    assert (plane.jobs.warned, plane.jobs.evicted) == ([], [])
    plane.work(seconds=20)
    assert len(plane.jobs.warned) >= 1
    assert plane.status().warned_time is not None
    plane.work(seconds=500)
    assert (plane.phase(), plane.jobs.evicted) == ("Waiting", [])
    plane.work(seconds=100)
    plane.work(seconds=10)
    assert plane.jobs.evicted == ["ml/training"]
    assert "Evicted" in [e.reason for e in plane.status().timeline]


def test_a_deadline_that_passed_while_nobody_led_still_warns_first(cluster: Cluster, unique: str) -> None:
    plane = Plane(cluster, unique, warning_seconds=600)
    plane.jobs.jobs = [job()]
    plane.ask(REBOOT_REQUESTED, "Deadline", "deadline=+60m", lastTransitionTime=rfc3339(plane.now))
    plane.work(seconds=7200)
    assert plane.jobs.evicted == []
    assert plane.jobs.warned[0] >= plane.now + timedelta(seconds=590)
    plane.work(seconds=610)
    plane.work(seconds=10)
    assert plane.jobs.evicted == ["ml/training"]


def test_a_job_whose_owner_forbids_it_is_not_ended_by_a_deadline(plane: Plane) -> None:
    plane.jobs.jobs = [job(do_not_disrupt=True)]
    plane.ask(REBOOT_REQUESTED, "Deadline", "deadline=+5m")
    plane.work()
    plane.work(seconds=7200)
    assert (plane.phase(), plane.jobs.evicted, plane.is_closed()) == ("Waiting", [], False)
    assert "its owner forbids eviction" in plane.status().blockers[0].message
    assert plane.status().next_step == "is claimed when its jobs have ended"


def test_a_held_node_is_not_disturbed_and_goes_back_if_it_was_claimed(plane: Plane) -> None:
    from provisioner.jobs.work import Held

    plane.jobs.jobs = [job()]
    plane.jobs.held = (Held(kind="Pod", name="ml/training", message="is ending"),)
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


def told(plane: Plane) -> str | None:
    intent = plane.intent()
    return intent["action"] if intent is not None else None


def test_the_agent_is_told_only_once_its_boot_will_be_let_in_again(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.work(seconds=10)
    assert told(plane) == "Stage"
    plane.order(prepared=False)
    plane.work()
    assert told(plane) == "Stage"
    plane.order()
    plane.work()
    intent, attempt = plane.intent(), plane.status().reboot
    assert intent is not None
    assert attempt is not None
    assert (intent["id"], intent["bootIDBefore"]) == (attempt.id, plane.status().boot_id_before)


def test_an_agent_that_cannot_hands_over_to_the_next_path(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.order()
    plane.work()
    plane.report("Failed", "kexec_file_load: not enough memory")
    plane.work()
    status = plane.status()
    assert status.attempts[0].message == "the agent says: kexec_file_load: not enough memory"
    assert status.reboot is not None
    assert status.reboot.method == "Reboot"


def test_without_an_agent_the_bmc_reboots(plane: Plane) -> None:
    plane.run_boot(plane.name, None)
    go_to_reboot(plane)
    assert plane.status().reboot.method == "Reset"  # type: ignore[union-attr]


def test_checks_that_do_not_pass_end_in_a_reason_after_their_time(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.order()
    plane.work()
    plane.verify(plane.boot(), status="False")
    plane.work()
    assert plane.phase() == "Verifying"
    assert [(b.kind, "disk is too small" in b.message) for b in plane.status().blockers] == [("Checks", True)]
    plane.work(seconds=1801)
    assert (plane.phase(), plane.status().conditions[-1].reason) == ("Failed", "NotVerified")
    assert "disk is too small" in plane.condition(REBOOT_REQUESTED)["message"]


def test_checks_that_have_failed_for_good_give_the_slot_back_at_once(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.order()
    plane.work()
    boot_id = plane.boot()
    plane.verify(boot_id, status="False", rounds=1)  # of two
    plane.work()
    assert plane.phase() == "Verifying"
    plane.verify(boot_id, status="False", rounds=2)
    plane.work()
    assert (plane.phase(), plane.status().conditions[-1].reason) == ("Failed", "NotVerified")
    assert "have failed: disk is too small" in plane.condition(REBOOT_REQUESTED)["message"]


def test_servers_that_wait_for_the_budget_claim_in_the_order_in_which_they_asked(cluster: Cluster, unique: str) -> None:
    plane = Plane(cluster, unique, servers=3)
    first, second, third = plane.names
    for name in (first, third, second):
        plane.ask(DRAIN_REQUESTED, name=name)
        plane.work(name)
        time.sleep(1.1)  # creation times have seconds
    assert [plane.phase(name) for name in plane.names] == ["Drained", "Waiting", "Waiting"]
    plane.withdraw(DRAIN_REQUESTED)
    plane.work(first)
    plane.executor.reconcile(second)
    assert plane.phase(second) == "Waiting"
    assert [(b.kind, b.name) for b in plane.status(second).blockers] == [("Maintenance", f"{third}-1")]
    plane.work(third)
    plane.work(second)
    assert [plane.phase(name) for name in plane.names] == ["Completed", "Waiting", "Drained"]


def test_a_request_that_the_api_server_refuses_does_not_hold_up_what_is_under_way(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.ask(DRAIN_REQUESTED)

    class Refusing(PassedOn):
        def create(self, type_: Any, body: Any, **more: Any) -> Any:
            raise Refused("a policy forbids it", hint="ask somebody who may")

    plane.executor = plane.start(Refusing(plane.cluster))
    finish(plane)
    assert [m.status.phase for m in plane.maintenances()] == ["Completed"]
    assert "RequestRefused" in plane.events.reasons("Node")


def test_conditions_that_another_tool_sets_are_not_taken_for_our_own(plane: Plane) -> None:
    foreign = {"type": "MaintenanceInProgress", "status": "True", "reason": "Firmware", "message": "by another tool"}
    plane.set_condition(foreign)
    plane.work()
    assert plane.condition("MaintenanceInProgress")["status"] == "True"


def test_a_clock_that_is_set_back_does_not_keep_the_claim_open(plane: Plane) -> None:
    plane.ask(DRAIN_REQUESTED)
    dying = DyingCluster(plane.cluster, "DrainStarted")
    plane.executor = plane.start(dying)
    with pytest.raises(SimulatedCrash):
        plane.work()
    assert plane.phase() == "Claiming"
    plane.now -= timedelta(hours=5)
    plane.executor = plane.start()
    plane.work()
    assert plane.phase() == "Drained"


def test_a_clock_that_is_set_back_does_not_make_it_reboot_by_the_same_path_again(plane: Plane) -> None:
    plane.ask(REBOOT_REQUESTED)
    plane.executor = plane.start(DyingCluster(plane.cluster, "RebootStarted"))
    with pytest.raises(SimulatedCrash):
        plane.work()
    plane.now -= timedelta(hours=5)
    plane.executor = plane.start()
    plane.work()
    plane.order()
    plane.work()
    plane.work(seconds=200)
    assert [a.method for a in plane.status().attempts] == ["Kexec"]
    assert plane.status().reboot.method == "Reboot"  # type: ignore[union-attr]


def test_a_name_too_long_for_a_taint_is_still_found_in_slurm(cluster: Cluster, unique: str) -> None:
    plane = Plane(cluster, unique)
    with_slurm(plane)
    long = f"{'x' * 60}-{unique}-1"
    plane.jobs.drain = f"provisioner: {long}"
    plane.patch_node({"spec": {"taints": [{"key": MAINTENANCE_TAINT, "value": long[-63:], "effect": "NoSchedule"}]}})
    plane.work()
    assert (plane.is_closed(), plane.jobs.drain) == (False, None)


def test_the_seventeenth_who_asks_gets_a_maintenance_of_its_own(plane: Plane) -> None:
    plane.jobs.jobs = [job()]
    plane.file(1, *({"name": f"user-{n}", "action": "Reboot", "message": "x" * 1024} for n in range(16)))
    plane.ask(REBOOT_REQUESTED, "WhenIdle", "y" * 4096)
    plane.work()
    assert [len(m.spec.requestors) for m in plane.maintenances()] == [16, 1]
    assert [b.kind for b in plane.status().blockers] == ["Maintenance"]
    assert len(plane.maintenances()[0].status.timeline) == 16


def test_what_was_staged_is_what_the_kexec_starts(plane: Plane) -> None:
    """Other ids, the same digest and kernel arguments: the agent then fetches nothing again."""
    plane.jobs.jobs = [job()]
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    stage = plane.intent()
    plane.jobs.jobs = []
    plane.work(seconds=60)
    plane.order()
    plane.work()
    kexec = plane.intent()
    assert stage is not None
    assert kexec is not None
    assert (stage["action"], kexec["action"]) == ("Stage", "Kexec")
    assert stage["id"] != kexec["id"]
    told = agent.parse_intent(json.dumps(stage))
    held = agent.Held(
        image_digest=told.image_digest, arguments=told.arguments, state="Staged", intent_id=told.id, message="", since=0
    )
    step = agent.next_step(agent.parse_intent(json.dumps(kexec)), kexec["bootIDBefore"], held, "", 0)
    assert step == agent.ACT_KEXEC


def test_a_server_is_not_taken_out_of_use_before_its_agent_has_staged(plane: Plane) -> None:
    plane.agent_stages = False
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    plane.work(seconds=60)
    assert (plane.phase(), plane.is_closed()) == ("Waiting", False)
    assert [b.kind for b in plane.status().blockers] == ["Agent"]
    plane.report("Staged")
    plane.work()
    assert plane.phase() == "Rebooting"


def test_a_server_or_pool_that_is_gone_has_its_reason(plane: Plane) -> None:
    plane.jobs.jobs = [job()]
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    plane.cluster.delete(of(NodePool), plane.unique)
    plane.work(seconds=60)
    assert "NodePool" in plane.status().blockers[0].message
    plane.cluster.delete(of(Server), plane.name)
    plane.work(seconds=60)
    assert (plane.phase(), plane.status().conditions[-1].reason) == ("Failed", "ServerGone")


def test_a_replaced_node_was_not_claimed(plane: Plane) -> None:
    plane.ask(DRAIN_REQUESTED)
    plane.work()
    plane.cluster.delete(NODES, plane.name)
    plane.make_node(plane.name)
    plane.work()
    assert plane.phase() == "Failed"
    assert plane.status().conditions[-1].reason == "NodeReplaced"


def test_a_stale_leader_cannot_undo_what_the_new_one_did(plane: Plane) -> None:
    """It decided on a Maintenance that has changed since: nothing of it is carried out."""
    plane.ask(DRAIN_REQUESTED)
    plane.jobs.jobs = [job()]
    plane.work()
    plane.jobs.jobs = []

    class Overtaken(PassedOn):
        done = False

        def get(self, type_: Any, name: str, **more: Any) -> Any:
            if type_ == of(Maintenance) and not self.done:
                self.done = True
                plane.work()  # the new leader comes first
            return self.cluster.get(type_, name, **more)

    with pytest.raises(Conflict):
        reconcile_often(plane.start(Overtaken(plane.cluster)), plane.name)
    assert (plane.phase(), plane.is_closed()) == ("Drained", True)


def test_the_record_is_bounded_and_keeps_first_and_newest(plane: Plane) -> None:
    from provisioner.maintenance.record import note

    status = plane_status = None
    plane.jobs.jobs = [job()]
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    plane_status = plane.status()
    status = plane_status
    for number in range(300):
        status = note(status, plane.now, "Evicted", f"entry {number}")
    assert len(status.timeline) == 128
    assert status.timeline[0] == plane_status.timeline[0]
    assert status.timeline[-1].message == "entry 299"


def reconcile_often(executor: Any, name: str) -> None:
    for _ in range(5):
        executor.reconcile(name)


class SimulatedCrash(BaseException):
    """The executor's process ends here."""


class PassedOn:
    """The real door."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)


class DyingCluster(PassedOn):
    """Ends the process before the status whose newest entry has that reason is written."""

    def __init__(self, cluster: Any, reason: str) -> None:
        super().__init__(cluster)
        self.reason = reason

    def apply_status(self, kind: Any, name: str, status: Any, **more: Any) -> Any:
        if kind is Maintenance and status["timeline"][-1]["reason"] == self.reason:
            raise SimulatedCrash
        return self.cluster.apply_status(kind, name, status, **more)


class BlindCluster(PassedOn):
    """Sees no other server's Maintenance, and ends the process once a claim is written."""

    def list(self, type_: Any, **more: Any) -> Any:
        found = self.cluster.list(type_, **more)
        if type_ == of(Maintenance) and "serverRef" not in more.get("field_selector", ""):
            found.items.clear()
        return found

    def apply_status(self, kind: Any, name: str, status: Any, **more: Any) -> Any:
        done = self.cluster.apply_status(kind, name, status, **more)
        if status.get("phase") == "Claiming":
            raise SimulatedCrash
        return done


def with_slurm(plane: Plane) -> None:
    slurm = SlurmJobs(url="http://slurm.invalid:6820", credentials_name="slurm")
    patch = {"spec": {"jobs": {"slurm": {"url": slurm.url, "credentialsName": slurm.credentials_name}}}}
    plane.cluster.patch(of(NodePool), plane.unique, patch)
    plane.jobs.has_slurm = True
