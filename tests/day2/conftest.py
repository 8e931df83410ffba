"""A control plane of this folder's own: its kinds get other versions, and its etcd is put back to former moments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.binaries.etcd_tools import EtcdTools, entry_of, obtain_etcd_tools
from lab.binaries.obtain import Binaries
from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster
from tests.conftest import install
from tests.tools import CACHE, missing


@pytest.fixture(scope="session")
def etcd_tools() -> EtcdTools:
    """etcdctl and etcdutl."""
    if not entry_of(CACHE).is_dir():
        missing("etcdctl")
    return obtain_etcd_tools(CACHE)


@pytest.fixture(scope="session")
def own_plane(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A running control plane with the project's manifests in it, that no other folder's tests see."""
    with ControlPlane(tmp_path_factory.mktemp("own"), binaries, node_grace="1h") as plane:
        install(Cluster.connect(plane.kubeconfig))
        yield plane


@pytest.fixture
def admin(own_plane: ControlPlane) -> Cluster:
    """The administrator of it."""
    return Cluster.connect(own_plane.kubeconfig, user_agent="provisioner-tests", busy_seconds=15)
