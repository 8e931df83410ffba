"""The executor against a real API server: the whole way, by each path, and the faults that others have met on it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.errors import Conflict
from provisioner.api.nodes.contract import (
    DRAIN_REQUESTED,
    REBOOT_REQUESTED,
)
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from provisioner.node import intent as agent
from tests.maintenance.executor_steps import (
    DyingCluster,
    PassedOn,
    SimulatedCrash,
    finish,
    go_to_reboot,
    reconcile_often,
    told,
)
from tests.maintenance.fake_jobs import job
from tests.maintenance.plane import OTHER_DIGEST, Plane


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
    assert plane.events.reasons("Node") == ["Requested", "Claimed", "RebootStarted", "BootSeen", "Completed"]
    assert plane.events.reasons("Maintenance") == []  # its status holds the whole record
    assert status.timeline[0].message == "condition-reboot: Reboot, WhenIdle: new kernel"


def test_after_a_restart_the_same_server_goes_on_and_no_other_is_picked(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    plane = Plane(cluster, controller_account, unique, servers=2)
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


def test_a_clock_that_is_set_back_does_not_keep_the_claim_open(plane: Plane) -> None:
    plane.ask(DRAIN_REQUESTED)
    dying = DyingCluster(plane.client, "DrainStarted")
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
    plane.executor = plane.start(DyingCluster(plane.client, "RebootStarted"))
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
    held = agent.StagedImage(
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

        def apply_status(self, kind: Any, name: str, status: Any, **more: Any) -> Any:
            if kind is Maintenance and not self.done:
                self.done = True
                plane.work()  # the new leader comes first
            return self.cluster.apply_status(kind, name, status, **more)

    with pytest.raises(Conflict):
        reconcile_often(plane.start(Overtaken(plane.client)), plane.name)
    assert (plane.phase(), plane.is_closed()) == ("Drained", True)


def test_the_record_is_bounded_and_keeps_first_and_newest(plane: Plane) -> None:
    from provisioner.maintenance.status.record import note

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
