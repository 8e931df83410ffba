"""Tests on the shared control plane leave nothing in it: what lists everything would take longer with each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from tests.maintenance.plane import Plane


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest, unique: str) -> Iterator[None]:
    yield
    if "cluster" not in request.fixturenames:
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    for type_ in (of(Maintenance), of(Server), of(NodePool), of(Image), NODES):
        for item in cluster.list(type_).items:
            name = item["metadata"]["name"]
            if not name.startswith(unique):
                continue
            if item["metadata"].get("finalizers"):
                cluster.patch(type_, name, {"metadata": {"finalizers": None}})
            cluster.delete(type_, name)


@pytest.fixture
def plane(cluster: Cluster, controller_account: Cluster, unique: str) -> Plane:
    return Plane(cluster, controller_account, unique)


@pytest.fixture(scope="session")
def controller_account(account: Callable[[str], Cluster]) -> Cluster:
    """The cluster as this stage's controller sees it."""
    return account("maintenance")
