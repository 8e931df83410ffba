"""One real control plane a test run, shared by all tests; each test keeps to its own names (`unique`)."""

from __future__ import annotations

import importlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provisioner.api.errors import NeedsHuman
from provisioner.lab.binaries import Binaries, find_binaries

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster
    from provisioner.lab.control_plane import ControlPlane


@pytest.fixture(scope="session")
def binaries() -> Binaries:
    """The Kubernetes programs. Absent: a visible skip, but in CI (`CI=true`) a failure."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    in_ci = os.environ.get("CI") == "true"
    try:
        # A test run does not begin with a build of six minutes unless it is CI's.
        return find_binaries(
            assets=Path(assets) if assets else None, allow_download=in_ci, allow_build=in_ci, report=print
        )
    except NeedsHuman as error:
        if in_ci:
            raise
        pytest.skip(f"no control plane: {error}")


@pytest.fixture(scope="session")
def control_plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running control plane with the project's CRDs in it."""
    from provisioner.cluster.client import Cluster
    from provisioner.lab.control_plane import ControlPlane

    with ControlPlane(tmp_path_factory.mktemp("control-plane"), binaries) as plane:
        install_crds(Cluster.connect(plane.kubeconfig))
        yield plane


def install_crds(cluster: Cluster) -> None:
    """Apply the project's CRDs and wait until the API server serves them."""
    from provisioner.cluster.install import apply_crds

    try:
        crds = importlib.import_module("provisioner.api.crd").all_crds()
    except ModuleNotFoundError:
        return
    apply_crds(cluster, crds, timeout_seconds=60)


@pytest.fixture(scope="session")
def cluster(control_plane: ControlPlane) -> Cluster:
    """The administrator's door to the shared control plane."""
    from provisioner.cluster.client import Cluster

    return Cluster.connect(control_plane.kubeconfig, user_agent="provisioner-tests")


@pytest.fixture
def unique() -> str:
    """A name that no other test uses: a DNS label of 9 characters, to be used as a prefix."""
    return f"t{uuid.uuid4().hex[:8]}"
