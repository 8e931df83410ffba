"""Helm, and a control plane to install into: not the shared one, as uninstalling takes rights away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.binaries.obtain import Binaries
from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster
from tests.chart.helm import Helm, find_helm


@pytest.fixture(scope="session")
def helm(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Without a cluster."""
    return find_helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def empty_plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Of a cluster that has never heard of us."""
    with ControlPlane(tmp_path_factory.mktemp("empty-control-plane"), binaries) as plane:
        yield plane


@pytest.fixture(scope="module")
def admin(empty_plane: ControlPlane) -> Cluster:
    return Cluster.connect(empty_plane.kubeconfig, user_agent="provisioner-tests")


@pytest.fixture(scope="module")
def installing_helm(empty_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return find_helm(tmp_path_factory.mktemp("installing-helm"), empty_plane.kubeconfig)


@pytest.fixture
def kubectl(binaries: Binaries, empty_plane: ControlPlane) -> tuple[str, ...]:
    return (str(binaries.kubectl), f"--kubeconfig={empty_plane.kubeconfig}")
