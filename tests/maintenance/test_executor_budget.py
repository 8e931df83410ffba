"""Several servers of a pool that all want to be disturbed, against a real API server."""

from __future__ import annotations

import time

import pytest

from provisioner.api.nodes.contract import (
    DRAIN_REQUESTED,
    REBOOT_REQUESTED,
)
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES
from tests.maintenance.executor_steps import ClaimsAndDies, SimulatedCrash
from tests.maintenance.fake_jobs import job
from tests.maintenance.plane import Plane


def test_a_vanished_node_gives_its_slot_back(cluster: Cluster, controller_account: Cluster, unique: str) -> None:
    plane = Plane(cluster, controller_account, unique, servers=2)
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
    from provisioner.jobs.model.work import EvictionBlocked

    plane.file(1, {"name": "user-alice", "action": "Reboot", "policy": "Now"})
    plane.jobs.jobs = [job("web/front")]
    plane.jobs.held = (EvictionBlocked(kind="PodDisruptionBudget", name="web/front", message="its budget forbids it"),)
    plane.work()
    assert [(b.kind, b.name) for b in plane.status().blockers] == [("PodDisruptionBudget", "web/front")]
    plane.work(seconds=3601)
    assert (plane.phase(), plane.is_closed()) == ("Failed", False)
    assert "held up by PodDisruptionBudget web/front" in plane.status().timeline[-1].message


def test_one_broken_node_does_not_halt_everything(cluster: Cluster, controller_account: Cluster, unique: str) -> None:
    plane = Plane(cluster, controller_account, unique, servers=3)
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


def test_the_next_node_does_not_start_before_the_last_is_back_and_verified(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    plane = Plane(cluster, controller_account, unique, servers=2)
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


def test_two_that_claim_at_the_same_moment_both_stand_back(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    plane = Plane(cluster, controller_account, unique, servers=2)
    first, second = plane.names
    for name in plane.names:
        plane.ask(REBOOT_REQUESTED, "Now", name=name)
    leaders = {name: plane.start(ClaimsAndDies(plane.client)) for name in plane.names}
    for name, leader in leaders.items():
        leader.reconcile_on_what_is_cached(name)  # files the Maintenance
    for leader in leaders.values():
        leader.catch_up()
    for name, leader in leaders.items():
        with pytest.raises(SimulatedCrash):
            leader.reconcile_on_what_is_cached(name)  # neither sees what the other has just written
    assert [plane.phase(name) for name in plane.names] == ["Claiming", "Claiming"]
    plane.work(first)
    assert not plane.is_closed(first) or not plane.is_closed(second)
    plane.work(second)
    plane.work(first, seconds=10)
    disturbed = [n for n in plane.names if plane.phase(n) not in ("Waiting", "Completed")]
    assert len(disturbed) == 1


def test_a_claim_counts_for_the_other_workers_of_its_process_before_the_caches_show_it(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    plane = Plane(cluster, controller_account, unique, servers=2)
    for name in plane.names:
        plane.ask(REBOOT_REQUESTED, "Now", name=name)
    leader = plane.start()
    for name in plane.names:
        leader.reconcile_on_what_is_cached(name)  # files the Maintenance
    leader.catch_up()
    for name in plane.names:
        leader.reconcile_on_what_is_cached(name)
    assert [plane.phase(name) for name in plane.names] == ["Claiming", "Waiting"]


def test_servers_that_wait_for_the_budget_claim_in_the_order_in_which_they_asked(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    plane = Plane(cluster, controller_account, unique, servers=3)
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
