"""Servers that are closed in Slurm for a moment to come, before an executor on a real API server. Slurm is a fake."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from provisioner.api import Maintenance
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import MAINTENANCE_TAINT
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import of
from tests.maintenance.executor_steps import with_slurm
from tests.maintenance.fake_jobs import job
from tests.maintenance.plane import Plane

HOUR = 3600.0


@pytest.fixture
def plane(cluster: Cluster, controller_account: Cluster, unique: str) -> Plane:
    plane = Plane(cluster, controller_account, unique)
    with_slurm(plane)
    plane.verify(str(plane.node()["status"]["nodeInfo"]["bootID"]))
    plane.jobs.jobs = [job("4711", "SlurmJob")]
    return plane


def ask(plane: Plane, turn: str = "Closed", closes: datetime | None = None) -> None:
    entry: dict[str, Any] = {"name": "rollout", "action": "Reimage", "imageRef": plane.image, "turn": turn}
    entry |= {"closingTime": rfc3339(closes)} if closes is not None else {}
    if plane.maintenances():
        plane.cluster.patch(of(Maintenance), mine(plane), {"spec": {"requestors": [entry]}})
    else:
        plane.file(1, entry)
    plane.work()


def later(plane: Plane, hours: float = 1) -> datetime:
    return plane.now + timedelta(hours=hours)


def mine(plane: Plane) -> str:
    return f"{plane.name}-1"


def reasons(plane: Plane) -> list[str]:
    return [entry.reason for entry in plane.status().timeline]


def test_it_is_reserved_and_not_drained_until_that_moment_and_then_drained_as_well(plane: Plane) -> None:
    begins = later(plane)
    ask(plane, closes=begins)
    assert (plane.jobs.reservations, plane.jobs.drain) == ({mine(plane): begins}, None)
    assert plane.is_closed(), "no taint lets pods in for a while"
    plane.work(seconds=HOUR - 120)
    assert plane.jobs.drain is None
    plane.work(seconds=120)
    assert plane.jobs.drain == f"provisioner: {mine(plane)}"
    assert plane.jobs.reservations, "it is deleted with the drain"
    ask(plane, turn="Waits")
    assert (plane.jobs.reservations, plane.jobs.drain, plane.is_closed()) == ({}, None, False)
    assert plane.status().slurm is None


def test_what_is_reserved_is_on_record_before_it_is(plane: Plane) -> None:
    seen: list[Any] = []
    reserve = plane.jobs.reserve

    def watched(*args: Any) -> Any:
        seen.append(plane.status().slurm)
        return reserve(*args)

    plane.jobs.reserve = watched  # type: ignore[method-assign]
    begins = later(plane)
    ask(plane, closes=begins)
    assert [(drain.node, drain.reserved_time) for drain in seen] == [(plane.name, rfc3339(begins))]


def test_another_moment_moves_it(plane: Plane) -> None:
    ask(plane, closes=later(plane))
    ask(plane, closes=later(plane, 3))
    assert plane.jobs.reservations == {mine(plane): later(plane, 3)}
    slurm = plane.status().slurm
    assert slurm is not None
    assert slurm.reserved_time == rfc3339(later(plane, 3))
    assert reasons(plane).count("Reserved") == 2


def test_what_was_drained_is_reserved_instead_once_there_is_a_moment_for_it(plane: Plane) -> None:
    ask(plane)
    assert plane.jobs.drain is not None
    ask(plane, closes=later(plane))
    assert (list(plane.jobs.reservations), plane.jobs.drain) == ([mine(plane)], None)


def test_a_slurm_that_cannot_reserve_drains_it_says_so_and_is_asked_no_more(plane: Plane) -> None:
    plane.jobs.reserves = False
    ask(plane, closes=later(plane))
    assert plane.jobs.drain == f"provisioner: {mine(plane)}"
    slurm = plane.status().slurm
    assert slurm is not None
    assert slurm.reserved_time is None
    assert plane.status().timeline[-1].reason == "NotReserved"
    assert [b.kind for b in plane.status().blockers] == ["Rollout"]
    plane.jobs.reserves = True
    ask(plane, closes=later(plane, 3))
    assert (plane.jobs.reservations, reasons(plane).count("NotReserved")) == ({}, 1)
    ask(plane, turn="Waits")
    assert plane.jobs.drain is None


def test_one_that_refuses_it_drains_it_too_and_what_may_be_there_stays_on_record(plane: Plane) -> None:
    plane.jobs.refuses = "slurmrestd at http://slurm did not do it: Requested nodes are busy"
    ask(plane, closes=later(plane))
    assert plane.jobs.drain == f"provisioner: {mine(plane)}"
    assert "Requested nodes are busy" in plane.status().timeline[-1].message
    slurm = plane.status().slurm
    assert slurm is not None
    assert slurm.reserved_time is not None, "the answer may have been lost, and not the reservation"


def test_who_withdraws_leaves_no_reservation(plane: Plane) -> None:
    ask(plane, closes=later(plane))
    plane.cluster.delete(of(Maintenance), mine(plane))
    plane.work()
    assert (plane.jobs.reservations, plane.jobs.drain, plane.maintenances()) == ({}, None, [])


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_claim_drains_what_is_reserved_and_the_release_deletes_both(plane: Plane, has_begun: bool) -> None:
    ask(plane, closes=later(plane))
    plane.work(seconds=2 * HOUR if has_begun else 0)
    plane.jobs.jobs = []
    ask(plane, turn="Granted")
    plane.work(seconds=10)
    assert plane.phase() == "Rebooting"
    assert (list(plane.jobs.reservations), plane.jobs.drain) == ([mine(plane)], f"provisioner: {mine(plane)}")
    plane.order()
    plane.work()
    boot_id = plane.boot()
    plane.work()
    assert plane.jobs.reservations, "nothing is let in before it is verified"
    plane.verify(boot_id)
    plane.work()
    assert plane.phase() == "Completed"
    assert (plane.jobs.reservations, plane.jobs.drain, plane.status().slurm) == ({}, None, None)


def test_one_that_failed_its_checks_stays_reserved_and_drained_until_it_is_verified(plane: Plane) -> None:
    ask(plane, closes=later(plane))
    plane.jobs.jobs = []
    ask(plane, turn="Granted")
    plane.work(seconds=10)
    boot_id = plane.fail_its_checks()
    assert plane.jobs.reservations
    assert plane.jobs.drain is not None
    plane.verify(boot_id)
    plane.work()
    assert (plane.jobs.reservations, plane.jobs.drain) == ({}, None)
    assert f"reservation of {plane.name} in Slurm deleted" in plane.status().timeline[-1].message


def test_what_a_maintenance_that_is_gone_has_reserved_goes_with_its_taint_and_nobody_elses(plane: Plane) -> None:
    ask(plane, closes=later(plane))
    plane.jobs.reservations[f"{plane.name}-9"] = later(plane)
    plane.cluster.patch(of(Maintenance), mine(plane), {"metadata": {"finalizers": None}})
    plane.cluster.delete(of(Maintenance), mine(plane))
    assert MAINTENANCE_TAINT in str(plane.node()["spec"]["taints"])
    plane.work()
    assert not plane.is_closed()
    assert list(plane.jobs.reservations) == [f"{plane.name}-9"]
