"""A control plane that holds nothing else: what other tests have left in theirs would be worked on, and counted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.binaries.obtain import Binaries
from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster
from tests.conftest import install


@pytest.fixture(scope="package")
def control_plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), binaries, node_grace="1h") as plane:
        install(Cluster.connect(plane.kubeconfig))
        yield plane


@pytest.fixture(scope="package")
def cluster(control_plane: ControlPlane) -> Cluster:
    return Cluster.connect(control_plane.kubeconfig, user_agent="provisioner-tests")
