"""Root on a machine, with its kubelet's certificate, says of it what it likes: its boot is still the provisioner's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provisioner.api.nodes.contract import POWER_CYCLE_REQUESTED, REBOOT_REQUESTED
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES
from tests.maintenance.plane import Plane


@pytest.fixture
def plane(cluster: Cluster, account: Callable[[str], Cluster], unique: str) -> Plane:
    return Plane(cluster, account("maintenance"), unique)


def claim_boot(plane: Plane, boot_id: str) -> None:
    patch = {"status": {"nodeInfo": {"bootID": boot_id}}}
    plane.cluster.strategic_patch(NODES, plane.name, patch, subresource="status")


@pytest.mark.parametrize("boot_id", ["x" * 64, "x" * 100_000, "\x1b[2J", "ä" * 63])
def test_a_boot_id_that_is_none_keeps_nobody_from_power_cycling_the_machine(plane: Plane, boot_id: str) -> None:
    claim_boot(plane, boot_id)
    plane.ask(POWER_CYCLE_REQUESTED, "Now", "it was broken into")
    plane.work()
    assert plane.phase() == "Rebooting"


@pytest.mark.parametrize("said", ["\ud800", "\x00", "x" * 100_000, "\u202e"])
def test_whatever_the_agent_says_is_written_down_once(plane: Plane, said: str) -> None:
    """What the API server would store otherwise than it was written would be written for ever."""
    plane.ask(REBOOT_REQUESTED)
    plane.work()
    plane.order()
    plane.work()
    plane.report("Staging", said)
    plane.work()
    before = plane.maintenances()[-1]
    assert "agent" in before.status.blockers[0].message
    plane.work()
    assert plane.maintenances()[-1].metadata.resource_version == before.metadata.resource_version
