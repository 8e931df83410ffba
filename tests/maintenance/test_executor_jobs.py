"""Jobs, foreign cordons and foreign drains before the executor, against a real API server."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import (
    MAINTENANCE_TAINT,
    REBOOT_REQUESTED,
)
from provisioner.cluster.client import Cluster
from tests.maintenance.executor_steps import DyingCluster, SimulatedCrash, finish, go_to_reboot, with_slurm
from tests.maintenance.fake_jobs import job
from tests.maintenance.plane import Plane


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


def test_a_foreign_drain_in_slurm_stays(cluster: Cluster, controller_account: Cluster, unique: str) -> None:
    plane = Plane(cluster, controller_account, unique)
    with_slurm(plane)
    plane.jobs.drain = "bad DIMM"
    go_to_reboot(plane)
    finish(plane)
    assert (plane.phase(), plane.jobs.drain) == ("Completed", "bad DIMM")


def test_our_drain_in_slurm_is_lifted_also_when_the_crash_came_before_its_record(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    plane = Plane(cluster, controller_account, unique)
    with_slurm(plane)
    plane.ask(REBOOT_REQUESTED)
    dying = DyingCluster(plane.client, "Closed")
    plane.executor = plane.start(dying)
    with pytest.raises(SimulatedCrash):
        plane.work()
    assert plane.jobs.drain == f"provisioner: {plane.name}-1"
    assert "Closed" not in [e.reason for e in plane.status().timeline]
    plane.withdraw(REBOOT_REQUESTED)
    plane.executor = plane.start()
    plane.work()
    assert (plane.phase(), plane.jobs.drain) == ("Cancelled", None)


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


def test_a_deadline_warns_first_and_evicts_only_then(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    plane = Plane(cluster, controller_account, unique, warning_seconds=600)
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


def test_a_deadline_that_passed_while_nobody_led_still_warns_first(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    plane = Plane(cluster, controller_account, unique, warning_seconds=600)
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


def test_a_name_too_long_for_a_taint_is_still_found_in_slurm(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    plane = Plane(cluster, controller_account, unique)
    with_slurm(plane)
    long = f"{'x' * 60}-{unique}-1"
    plane.jobs.drain = f"provisioner: {long}"
    plane.patch_node({"spec": {"taints": [{"key": MAINTENANCE_TAINT, "value": long[-63:], "effect": "NoSchedule"}]}})
    plane.work()
    assert (plane.is_closed(), plane.jobs.drain) == (False, None)
