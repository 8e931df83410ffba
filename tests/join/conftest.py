"""A server in the shared control plane, whose services have only the rights that `rbac` gives them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster
from provisioner.join.certificates.controller import Approver
from provisioner.join.nodes.node_controller import NodePreparer
from tests.cluster.fake_events import FakeEvents
from tests.join.world import Clock, World, connect_as_account, register


@dataclass(frozen=True)
class Accounts:
    """The doors of the join service, of the preparer of Nodes and of the approver, each by a token of its account."""

    boot: Cluster
    join: Cluster
    approver: Cluster


@pytest.fixture(scope="session")
def accounts(cluster: Cluster, control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Accounts:
    folder = tmp_path_factory.mktemp("accounts")
    names = ("boot", "join", "approver")
    return Accounts(*(connect_as_account(cluster, control_plane, folder, f"provisioner-{name}") for name in names))


@pytest.fixture
def make_world(
    cluster: Cluster, control_plane: ControlPlane, accounts: Accounts, tmp_path: Path, unique: str
) -> Callable[..., World]:
    """Makes servers, named after the test's unique prefix."""

    def make(suffix: str = "a", **changes: Any) -> World:
        digits = uuid.uuid4().bytes
        clock, recorded = Clock(), FakeEvents()
        world = World(
            admin=cluster,
            plane=control_plane,
            folder=tmp_path,
            name=f"{unique}-{suffix}",
            mac="52:54:" + ":".join(f"{byte:02x}" for byte in digits[:4]),
            address=f"10.{digits[5]}.{digits[6]}.{digits[7] % 250 + 1}",
            service_cluster=accounts.boot,
            approver=Approver(cluster=accounts.approver, recorder=recorded, now=clock),
            preparer=NodePreparer(cluster=accounts.join, recorder=recorded, now=clock),
            recorded=recorded,
            clock=clock,
        )
        register(world)
        return world

    return make


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    """A server whose first boot is ordered."""
    made = make_world()
    made.order("order-1")
    return made
