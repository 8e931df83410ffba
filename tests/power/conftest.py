"""What the tests of the power controllers share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from provisioner.api.nodes.maintenance import Maintenance
from provisioner.api.servers.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import BMC_SECRETS, SECRETS, of
from tests.lab.fake_machine import fake_server
from tests.power.power_site import Site


@pytest.fixture
def site(cluster: Cluster, controller_account: Cluster, unique: str, tmp_path: Path) -> Iterator[Site]:
    create_namespace(cluster)
    with fake_server(tmp_path / "bmc", name=unique) as fake:
        made = Site(cluster, controller_account, unique, fake)
        made.write_secret()
        try:
            yield made
        finally:
            made.stop()
            cluster.delete(of(Maintenance), f"{unique}-1")
            cluster.delete(of(Server), unique)
            cluster.delete(SECRETS, f"{unique}-bmc", namespace=BMC_SECRETS)


def create_namespace(cluster: Cluster) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": BMC_SECRETS}}, manager="test")


@pytest.fixture(scope="session")
def controller_account(account: Callable[[str], Cluster]) -> Cluster:
    """The cluster as this stage's controller sees it."""
    return account("power")
