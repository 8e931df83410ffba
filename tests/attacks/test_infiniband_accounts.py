"""What whoever has stolen the account of the InfiniBand controller, or that of an OpenSM's host, can and cannot do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from provisioner.api import InfiniBandNetwork, NetworkClaim, Server
from provisioner.api.machinery.errors import Forbidden, ProvisionerError
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import BMC_SECRETS, FABRIC_SECRETS, SECRETS, of
from provisioner.network.infiniband.pkey_controller import MANAGER
from tests.people import until

if TYPE_CHECKING:
    from lab.control_plane.plane import ControlPlane

API = "provisioner.dev/v1alpha1"
ENFORCED = {"observedGeneration": 1, "readTime": "2026-01-02T12:00:00Z"}


@pytest.fixture
def objects(cluster: Cluster, unique: str) -> Iterator[str]:
    """Networks `<unique>-opensm` and `<unique>-ufm`."""
    for manager in ("OpenSM", "UFM"):
        name = f"{unique}-{manager.lower()}"
        body = {"apiVersion": API, "kind": "InfiniBandNetwork", "metadata": {"name": name}}
        cluster.create(of(InfiniBandNetwork), body | {"spec": {"manager": manager}})
    yield unique
    for manager in ("opensm", "ufm"):
        cluster.delete(of(InfiniBandNetwork), f"{unique}-{manager}")


def claim(name: str, type_: str, value: str) -> dict[str, Any]:
    holder = {"kind": "VPC", "namespace": "default", "name": "main", "uid": "x"}
    spec = {"type": type_, "value": value, "holder": holder}
    return {"apiVersion": API, "kind": "NetworkClaim", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def thief(account: Callable[[str], Cluster], objects: str) -> Cluster:
    found = account("infiniband")

    def may_write() -> bool:
        try:
            found.apply_status(InfiniBandNetwork, f"{objects}-ufm", ENFORCED, manager="thief")
        except ProvisionerError:
            return False
        return True

    until(may_write)
    return found


def test_it_says_for_no_opensm_that_something_is_enforced(thief: Cluster, objects: str) -> None:
    """Or a P_Key would be given to another tenant while ports have it."""
    with pytest.raises(Forbidden, match="its host says so"):
        thief.apply_status(InfiniBandNetwork, f"{objects}-opensm", ENFORCED, manager="thief")


def test_it_frees_no_p_key_that_is_in_use_and_writes_no_other_claim(
    thief: Cluster, account: Callable[[str], Cluster], cluster: Cluster
) -> None:
    foreign = claim("vni-16777214", "VNI", "16777214")
    with pytest.raises(Forbidden, match="those of P_Keys are written by"):
        thief.create(of(NetworkClaim), foreign)
    own = claim("pkey-7ff0", "PKey", "0x7ff0")
    with pytest.raises(Forbidden, match="those of P_Keys are written by"):
        account("network").create(of(NetworkClaim), own, dry_run=True)
    thief.create(of(NetworkClaim), own)
    try:
        with pytest.raises(Forbidden, match="which is not released"):
            thief.delete(of(NetworkClaim), "pkey-7ff0")
        thief.apply_status(NetworkClaim, "pkey-7ff0", {"releasedTime": "2026-01-02T12:00:00Z"}, manager=MANAGER)
        assert thief.delete(of(NetworkClaim), "pkey-7ff0")
    finally:
        cluster.delete(of(NetworkClaim), "pkey-7ff0")


def test_it_reads_ufms_passwords_and_no_others_and_writes_no_server(thief: Cluster, objects: str) -> None:
    assert thief.find(SECRETS, "none", namespace=FABRIC_SECRETS) is None
    with pytest.raises(Forbidden):
        thief.get(SECRETS, "none", namespace=BMC_SECRETS)
    with pytest.raises(Forbidden):
        thief.patch(of(Server), objects, {"spec": {"tenant": "mine"}})


def test_a_host_of_an_opensm_reads_and_acknowledges_networks_and_changes_none(
    control_plane: ControlPlane, cluster: Cluster, objects: str
) -> None:
    user = f"{objects}-sm"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "provisioner-infiniband-host",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    cluster.apply(binding, manager="test")
    host = Cluster.connect(control_plane.kubeconfig, as_user=user)

    def may_write() -> bool:
        try:
            host.apply_status(InfiniBandNetwork, f"{objects}-opensm", ENFORCED, manager="host")
        except Forbidden:
            return False
        return True

    until(may_write)
    with pytest.raises(Forbidden):
        host.patch(of(InfiniBandNetwork), f"{objects}-opensm", {"spec": {"partitions": []}})
    with pytest.raises(Forbidden):
        host.list(of(Server))
