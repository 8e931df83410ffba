"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster
from tests.cli.rack_of_nodes import RackOfNodes


@pytest.fixture
def rack(cluster: Cluster, control_plane: ControlPlane, unique: str) -> Iterator[RackOfNodes]:
    """Servers with Nodes; the asker is the lab's administrator."""
    rack = RackOfNodes(cluster, control_plane.kubeconfig, unique)
    rack.add_pool()
    yield rack
    rack.remove()
