"""What whoever has stolen the account of a route reflector's host can and cannot do at the API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provisioner.api import VPC, DPUNetwork, NetworkClaim, NetworkPool, SecurityGroup, Server, VPCAttachment
from provisioner.api.machinery.errors import Forbidden, ProvisionerError
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import BMC_SECRETS, SECRETS, of
from tests.network.control import objects
from tests.people import bind, until

if TYPE_CHECKING:
    from lab.control_plane.plane import ControlPlane


@pytest.fixture
def thief(control_plane: ControlPlane, cluster: Cluster, unique: str) -> Cluster:
    bind(cluster, "provisioner-reflector", unique)
    found = Cluster.connect(control_plane.kubeconfig, as_user=unique)

    def may_read() -> bool:
        try:
            found.list(of(DPUNetwork))
        except ProvisionerError:
            return False
        return True

    until(may_read)
    return found


@pytest.fixture
def network(cluster: Cluster, unique: str) -> str:
    name = f"{unique}-d"
    body = {"apiVersion": objects.API_OBJECT["apiVersion"], "kind": "DPUNetwork", "metadata": {"name": name}}
    cluster.apply(body | {"spec": {"vtepAddress": "10.255.7.7"}}, manager="tests")
    return name


def test_it_reads_every_dpus_network_and_changes_none(thief: Cluster, network: str) -> None:
    """That is its strong right: who has which addresses behind which DPU, and by which rules."""
    assert network in {each["metadata"]["name"] for each in thief.list(of(DPUNetwork)).items}
    with pytest.raises(Forbidden):
        thief.patch(of(DPUNetwork), network, {"spec": {"vtepAddress": "10.255.7.8"}})
    with pytest.raises(Forbidden):
        thief.apply_status(DPUNetwork, network, {"observedGeneration": 1}, manager="thief")
    with pytest.raises(Forbidden):
        thief.delete(of(DPUNetwork), network)


def test_of_the_pool_it_writes_words_and_no_choice(thief: Cluster, cluster: Cluster) -> None:
    if cluster.find(of(NetworkPool), "default") is None:
        cluster.apply(objects.pool(10001, 20000), manager="tests")
    with pytest.raises(Forbidden):
        thief.patch(of(NetworkPool), "default", {"spec": {"routeDistribution": {"type": "APIServer"}}})
    thief.apply_status(NetworkPool, "default", {}, manager="thief")


def test_it_reads_nothing_else(thief: Cluster) -> None:
    for kind in (Server, VPC, VPCAttachment, SecurityGroup, NetworkClaim):
        with pytest.raises(Forbidden):
            thief.list(of(kind))
    with pytest.raises(Forbidden):
        thief.list(SECRETS, namespace=BMC_SECRETS)
