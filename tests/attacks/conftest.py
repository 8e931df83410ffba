"""Who acts in the attacks on requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster
from tests.people import bind, kubeconfig_of, wait_for_policies


@pytest.fixture(scope="session")
def operator_kubeconfig(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """alice's; she has the role provisioner-operator, and the policies are in force."""
    path = kubeconfig_of(control_plane, tmp_path_factory.mktemp("people"), "alice")
    admin = Cluster.connect(control_plane.kubeconfig)
    bind(admin, "provisioner-operator", "alice")
    wait_for_policies(admin, Cluster.connect(path), "policy-probe")
    return path


@pytest.fixture(scope="session")
def operator(operator_kubeconfig: Path) -> Cluster:
    """The cluster as alice sees it, who has the role provisioner-operator."""
    return Cluster.connect(operator_kubeconfig)


@pytest.fixture(scope="session")
def administrator(
    control_plane: ControlPlane, operator_kubeconfig: Path, tmp_path_factory: pytest.TempPathFactory
) -> Cluster:
    """The cluster as ada sees it, who has the role provisioner-administrator."""
    bind(Cluster.connect(control_plane.kubeconfig), "provisioner-administrator", "ada")
    return Cluster.connect(kubeconfig_of(control_plane, tmp_path_factory.mktemp("people"), "ada"))
