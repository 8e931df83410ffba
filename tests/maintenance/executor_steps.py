"""Steps that tests of the executor share, and API servers that fail it."""

from __future__ import annotations

from typing import Any

from provisioner.api import Maintenance, NodePool
from provisioner.api.nodes.contract import (
    REBOOT_REQUESTED,
)
from provisioner.api.pools.pool_settings import SlurmJobs
from provisioner.cluster.resources import of
from tests.maintenance.plane import Plane


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


def told(plane: Plane) -> str | None:
    intent = plane.intent()
    return intent["action"] if intent is not None else None


def reconcile_often(executor: Any, name: str) -> None:
    for _ in range(5):
        executor.reconcile(name)


class SimulatedCrash(BaseException):
    """The executor's process ends here."""


class PassedOn:
    """The real client."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)


class DyingCluster(PassedOn):
    """Ends the process before an entry with that reason is written."""

    def __init__(self, cluster: Any, reason: str) -> None:
        super().__init__(cluster)
        self.reason = reason

    def apply_status(self, kind: Any, name: str, status: Any, **more: Any) -> Any:
        if kind is Maintenance and self.reason in {entry["reason"] for entry in status["timeline"]}:
            raise SimulatedCrash
        return self.cluster.apply_status(kind, name, status, **more)


class ClaimsAndDies(PassedOn):
    """Ends the process once a claim is written."""

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
