"""Slurm knows nothing of taints: a server that is not verified stays drained there, until it is."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api import Maintenance, Server
from provisioner.api.nodes.contract import MAINTENANCE_TAINT, REBOOT_REQUESTED
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from tests.maintenance.executor_steps import with_slurm
from tests.maintenance.plane import OTHER_DIGEST, Plane


@pytest.fixture
def plane(cluster: Cluster, controller_account: Cluster, unique: str) -> Plane:
    plane = Plane(cluster, controller_account, unique)
    with_slurm(plane)
    return plane


def reason(plane: Plane) -> str:
    return f"provisioner: {plane.name}-1"


def come_back_with_failed_checks(plane: Plane) -> str:
    """One reboot, after which the checks fail for good; returns the boot id."""
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    return plane.fail_its_checks()


def slurm_condition(plane: Plane) -> tuple[str, str] | None:
    return next(((c.status, c.message) for c in plane.status().conditions if c.type == "SlurmDrained"), None)


def test_a_server_whose_checks_failed_stays_drained_and_is_reopened_once_it_is_verified(plane: Plane) -> None:
    boot_id = come_back_with_failed_checks(plane)
    status = plane.status()
    assert (plane.jobs.drain, plane.is_closed()) == (reason(plane), False)
    assert status.slurm is not None
    assert status.slurm.reason == reason(plane)
    assert status.next_step == "is reopened in Slurm once the boot that runs there is verified"
    said = slurm_condition(plane)
    assert said is not None
    assert said[0] == "True"
    assert f"boot {boot_id} is not verified" in said[1]
    assert "StaysDrained" in plane.events.reasons("Node")
    plane.work(seconds=3600)
    assert plane.jobs.drain == reason(plane)
    plane.verify(boot_id)
    plane.work()
    assert (plane.jobs.drain, plane.status().slurm) == (None, None)
    assert plane.status().timeline[-1].reason == "Reopened"
    assert (slurm_condition(plane) or ("",))[0] == "False"
    assert (plane.phase(), plane.status().next_step) == ("Failed", None)


@pytest.mark.parametrize("outcome", ["wrong image", "never returns"])
def test_so_does_one_on_a_wrong_image_or_that_never_came_back(plane: Plane, outcome: str) -> None:
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    boot_id = ""
    for _ in range(8):
        if plane.phase() != "Rebooting":
            break
        plane.order()
        plane.work()
        if outcome == "wrong image":
            boot_id = plane.boot(OTHER_DIGEST)
        plane.work(seconds=0 if boot_id else 1000)
    assert (plane.phase(), plane.jobs.drain) == ("Failed", reason(plane))
    plane.verify(plane.boot())
    plane.work()
    assert plane.jobs.drain is None


def test_a_drain_that_somebody_else_has_taken_over_meanwhile_is_not_lifted(plane: Plane) -> None:
    boot_id = come_back_with_failed_checks(plane)
    plane.jobs.drain = "bad DIMM"
    plane.verify(boot_id)
    plane.work()
    assert (plane.jobs.drain, plane.status().slurm) == ("bad DIMM", None)
    assert "was not drained by us" in plane.status().timeline[-1].message


def test_the_next_maintenance_that_repairs_it_lets_the_first_ones_drain_be_lifted(plane: Plane) -> None:
    come_back_with_failed_checks(plane)
    plane.file(2, {"name": "user-alice", "action": "Reboot"})
    plane.work()
    assert plane.phase() == "Rebooting"
    assert "still drained by a Maintenance before it" in " ".join(e.message for e in plane.status().timeline)
    plane.order()
    plane.work()
    boot_id = plane.boot()
    plane.work()
    assert plane.jobs.drain == reason(plane)
    plane.verify(boot_id)
    plane.work()
    assert [m.status.phase for m in plane.maintenances()] == ["Failed", "Completed"]
    assert plane.jobs.drain is None


def test_a_maintenance_with_a_drain_is_deleted_only_once_that_is_lifted(plane: Plane) -> None:
    boot_id = come_back_with_failed_checks(plane)
    plane.cluster.delete(of(Maintenance), f"{plane.name}-1")
    plane.work(seconds=60)
    assert len(plane.maintenances()) == 1
    plane.verify(boot_id)
    plane.work()
    assert (plane.maintenances(), plane.jobs.drain) == ([], None)


def test_a_server_that_is_gone_is_verified_by_nobody_and_holds_nothing(plane: Plane) -> None:
    come_back_with_failed_checks(plane)
    plane.cluster.delete(of(Server), plane.name)
    plane.work()
    assert (plane.jobs.drain, plane.status().slurm) == (None, None)


def test_a_taint_whose_maintenance_was_taken_away_by_force_stays_while_slurm_must_stay_drained(plane: Plane) -> None:
    come_back_with_failed_checks(plane)
    plane.cluster.patch(of(Maintenance), f"{plane.name}-1", {"metadata": {"finalizers": None}})
    plane.cluster.delete(of(Maintenance), f"{plane.name}-1")
    taint = {"key": MAINTENANCE_TAINT, "value": f"{plane.name}-1", "effect": "NoSchedule"}
    plane.patch_node({"spec": {"taints": [taint]}})
    plane.work()
    assert (plane.is_closed(), plane.jobs.drain) == (True, reason(plane))
    plane.verify(str(plane.node()["status"]["nodeInfo"]["bootID"]))
    plane.work()
    assert (plane.is_closed(), plane.jobs.drain) == (False, None)


def test_what_is_drained_is_on_record_before_it_is(cluster: Cluster, controller_account: Cluster, unique: str) -> None:
    """Cordoned as soon as planned: a crash between the drain and its record, then a withdrawal."""
    plane = Plane(cluster, controller_account, unique, cordon="WhenPlanned")
    with_slurm(plane)
    seen: list[Any] = []
    plane.jobs.unknown = ("not known yet",)
    close = plane.jobs.close

    def watched(*args: Any) -> Any:
        seen.append(plane.status().slurm)
        return close(*args)

    plane.jobs.close = watched  # type: ignore[method-assign]
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    assert [drain.reason for drain in seen] == [reason(plane)]
