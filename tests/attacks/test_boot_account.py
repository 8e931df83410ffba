"""Somebody has taken a boot host: what its account can do to the cluster, with the rights that the manifests give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from provisioner.api import FirmwareProfile, Maintenance, Rack, Server
from provisioner.api.machinery.errors import Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, SECRETS, of
from tests.api.bad_attestation import profile
from tests.attacks.powers import in_minutes

MAC_NUMBERS = iter(range(1, 1000))


@pytest.fixture
def boot_host(account: Callable[[str], Cluster]) -> Cluster:
    """The cluster as a boot host's account sees it."""
    return account("boot")


def token(
    name: str, *, type_: str = "bootstrap.kubernetes.io/token", labels: dict[str, str] | None = None, **data: str
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "kube-system", "labels": labels or {}},
        "type": type_,
        "stringData": data,
    }


def bootstrap(token_id: str, group: str, *, labelled: bool = True) -> dict[str, Any]:
    return token(
        f"bootstrap-token-{token_id}",
        labels={"provisioner.dev/server": "r01-u01"} if labelled else None,
        **{
            "token-id": token_id,
            "token-secret": "0123456789abcdef",
            "expiration": in_minutes(10),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": group,
        },
    )


INVENTED = {
    "nodePoolRef": "gpu",
    "endorsementKeySHA256": "sha256:" + "ab" * 32,
    "bootAddress": "10.99.0.66",
    "serialNumber": "of another",
    "systemUUID": "4c4c4544-0042-4410-8056-b4c04f564432",
    "position": "u14",
}
"""What a person who accepts the machine would accept with it."""


def machine(name: str, acceptance: str, **more: Any) -> dict[str, Any]:
    mac = f"52:54:00:0b:{next(MAC_NUMBERS):02x}:01"
    spec = {"bootMACAddress": mac, "acceptance": acceptance, "rackRef": "r99", **more}
    return {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Server",
        "metadata": {"name": name},
        "spec": spec,
    }


def test_it_hands_out_bootstrap_tokens_and_no_other_secret(boot_host: Cluster, unique: str) -> None:
    boot_host.create(SECRETS, bootstrap("aaaaaa", "system:bootstrappers:provisioner"), namespace="kube-system")
    boot_host.delete(SECRETS, "bootstrap-token-aaaaaa", namespace="kube-system")
    honest = bootstrap("aaaaaa", "system:bootstrappers:provisioner")
    for forged in (token(unique, type_="Opaque", key="value"), honest | {"type": "Opaque"}):
        with pytest.raises(Refused, match="no other Secret"):
            boot_host.create(SECRETS, forged, namespace="kube-system")


def test_it_cannot_mint_a_token_of_a_group_that_others_approve(boot_host: Cluster) -> None:
    with pytest.raises(Refused, match="system:bootstrappers:provisioner alone"):
        boot_host.create(
            SECRETS,
            bootstrap("bbbbbb", "system:bootstrappers:kubeadm:default-node-token"),
            namespace="kube-system",
        )


def test_it_cannot_delete_anybody_elses_secret(boot_host: Cluster, cluster: Cluster, unique: str) -> None:
    cluster.create(SECRETS, token(unique, type_="Opaque", key="value"), namespace="kube-system")
    with pytest.raises(Refused, match="no other Secret"):
        boot_host.delete(SECRETS, unique, namespace="kube-system")


def test_it_reads_no_secret(boot_host: Cluster) -> None:
    for namespace in ("kube-system", "provisioner-system", "default"):
        with pytest.raises(Refused, match="cannot list resource"):
            boot_host.list(SECRETS, namespace=namespace)


def test_it_neither_makes_nor_deletes_a_token_that_is_not_of_a_server(boot_host: Cluster, cluster: Cluster) -> None:
    group = "system:bootstrappers:provisioner"
    foreign = bootstrap("cccccc", group, labelled=False)
    with pytest.raises(Refused, match=r"label provisioner\.dev/server"):
        boot_host.create(SECRETS, foreign, namespace="kube-system")
    cluster.create(SECRETS, foreign, namespace="kube-system")
    with pytest.raises(Refused, match=r"label provisioner\.dev/server"):
        boot_host.delete(SECRETS, "bootstrap-token-cccccc", namespace="kube-system")
    cluster.delete(SECRETS, "bootstrap-token-cccccc", namespace="kube-system")
    honest = bootstrap("cccccc", group)
    for changed, words in (
        ({"name": "a-token"}, r"label provisioner\.dev/server"),
        ({"labels": {"example.com/mine": "x"}}, r"label provisioner\.dev/server"),
        ({"labels": {"provisioner.dev/server": "r01-u01", "example.com/mine": "x"}}, "annotations and other labels"),
        ({"annotations": {"example.com/mine": "x"}}, "annotations and other labels"),
    ):
        with pytest.raises(Refused, match=words):
            boot_host.create(SECRETS, honest | {"metadata": honest["metadata"] | changed}, dry_run=True)


def test_it_makes_unknown_machines_known_but_accepts_none(boot_host: Cluster, cluster: Cluster, unique: str) -> None:
    name = f"unknown-{unique}"
    boot_host.create(of(Server), machine(name, "Pending"))
    for other in (
        machine(f"{name}-2", "Accepted"),
        machine(unique, "Pending"),
        machine(f"{name}-3", "Pending", powerState="Off"),
        machine(f"{name}-4", "Pending", bmc={"address": "https://10.9.9.9", "credentialsName": "r01-bmc"}),
        machine(
            f"{name}-5",
            "Pending",
            architecture="arm64",
            dpu={"hostRef": "r01-u01", "vtepAddress": "10.100.0.66", "hostAccess": "Privileged"},
        ),
        *(machine(f"{name}-{field.lower()}", "Pending", **{field: value}) for field, value in INVENTED.items()),
    ):
        with pytest.raises(Refused, match="only unknown machines"):
            boot_host.create(of(Server), other)
    for stays in (
        {"finalizers": ["example.com/stays"]},
        {"labels": {"example.com/mine": "x"}},
        {"annotations": {"provisioner.dev/trace": "2027-01-01T00:00:00Z"}},
    ):
        for body in (
            machine(f"{name}-6", "Pending"),
            profile(judged=[0]) | {"metadata": {"name": f"learned-{unique}"}},
        ):
            kind = of(Server) if body["kind"] == "Server" else of(FirmwareProfile)
            assert boot_host.create(kind, body, dry_run=True), "the honest twin"
            with pytest.raises(Refused, match="without labels, annotations, finalizers and owners"):
                boot_host.create(kind, body | {"metadata": body["metadata"] | stays}, dry_run=True)
    with pytest.raises(Refused, match="cannot patch resource"):
        boot_host.apply(machine(name, "Accepted"), manager="thief")
    assert cluster.read(Server, name).spec.acceptance == "Pending"


def test_it_reports_progress_but_orders_no_boot(boot_host: Cluster, cluster: Cluster, unique: str) -> None:
    cluster.create(of(Server), machine(unique, "Accepted"))
    boot_host.apply_status(Server, unique, {"progress": {"stage": "Stage1"}}, manager="provisioner-boot")
    order = {"id": "forged", "reason": "Requested", "orderedTime": "2026-01-01T00:00:00Z", "attempt": 1}
    for forged in (
        {"order": order},
        {"power": {"state": "Off"}},
        {"address": "10.80.0.66"},
        {"assignedImageRef": "its-own"},
        {"assignedNodePoolRef": "its-own"},
        {"nodePoolRef": "its-own"},
    ):
        with pytest.raises(Refused, match="provisioner-boot may not write"):
            boot_host.apply_status(Server, unique, forged, manager="thief")
    said = {"type": "Verified", "status": "True", "reason": "Passed", "message": ""}
    verified = {"conditions": [said | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    cluster.apply_status(Server, unique, verified, manager="provisioner-health")
    failed = {"conditions": [verified["conditions"][0] | {"status": "False"}]}
    for write in (
        lambda: boot_host.patch(of(Server), unique, {"status": {"conditions": []}}, subresource="status"),
        lambda: boot_host.apply_status(Server, unique, failed, manager="provisioner-health"),  # as if it were that one
    ):
        with pytest.raises(Refused, match="provisioner-boot may not write condition Verified"):
            write()
    status = cluster.read(Server, unique).status
    assert status.progress is not None
    assert status.order is None


def test_it_says_whether_a_cache_is_good_and_nothing_else_of_a_rack(
    boot_host: Cluster, cluster: Cluster, unique: str
) -> None:
    subnets = [{"name": "boot", "cidr": "10.99.0.0/24"}]
    body = {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Rack",
        "metadata": {"name": unique},
        "spec": {"subnets": subnets, "cacheURL": "http://10.99.0.5"},
    }
    cluster.create(of(Rack), body)
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "ServersReady",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    cluster.apply_status(Rack, unique, {"servers": 3, "conditions": [condition]}, manager="provisioner-inventory")
    report = {"host": "boot1", "time": "2026-01-01T00:00:00Z", "problem": "it sends nothing"}
    out = condition | {"type": "CacheAvailable", "status": "False", "reason": "CacheFails"}
    said = {"cacheReports": [report], "conditions": [out]}
    boot_host.apply_status(Rack, unique, said, manager="provisioner-boot")
    for forged in ({"servers": 0}, {"conditions": [condition | {"status": "False"}]}):
        with pytest.raises(Refused, match="whether its cache is good, and nothing else"):
            boot_host.apply_status(Rack, unique, forged, manager="thief")
    with pytest.raises(Refused, match="cannot patch resource"):
        boot_host.apply(body, manager="thief")
    status = cluster.read(Rack, unique).status
    assert (status.servers, [c.type for c in status.conditions if c.status == "False"]) == (3, ["CacheAvailable"])
    boot_host.apply_status(Rack, unique, {"conditions": [], "cacheReports": []}, manager="provisioner-boot")
    status = cluster.read(Rack, unique).status
    assert ([c.type for c in status.conditions], status.cache_reports) == (["Ready"], ()), "it takes back its own"
    cluster.delete(of(Rack), unique)


def test_it_asks_for_no_maintenance_and_answers_for_none(boot_host: Cluster, cluster: Cluster, unique: str) -> None:
    """A Maintenance has a server drained and reset: a stolen boot host must not file one, nor say how it ended."""
    body = {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Maintenance",
        "metadata": {"name": f"{unique}-1"},
        "spec": {"serverRef": unique, "requestors": [{"name": "user-root", "action": "Reboot", "policy": "Now"}]},
    }
    with pytest.raises(Refused, match="cannot create resource"):
        boot_host.create(of(Maintenance), body)
    with pytest.raises(Refused, match="cannot patch resource"):
        boot_host.apply(body, manager="thief")
    cluster.create(of(Maintenance), body)
    with pytest.raises(Refused, match="cannot patch resource"):
        boot_host.apply_status(Maintenance, f"{unique}-1", {"phase": "Rebooting"}, manager="provisioner-maintenance")
    with pytest.raises(Refused, match="cannot delete resource"):
        boot_host.delete(of(Maintenance), f"{unique}-1")
    cluster.delete(of(Maintenance), f"{unique}-1")


@pytest.mark.parametrize(
    "forged",
    [
        {"verification": {"bootID": "b", "attempt": 1, "startedTime": "2026-01-01T00:00:00Z"}},
        {"lifecycle": "InProduction"},
    ],
    ids=lambda forged: next(iter(forged)),
)
def test_it_lets_no_node_into_production(
    boot_host: Cluster, cluster: Cluster, unique: str, forged: dict[str, Any]
) -> None:
    cluster.create(of(Server), machine(unique, "Accepted"))
    with pytest.raises(Refused, match="provisioner-boot may not write"):
        boot_host.apply_status(Server, unique, forged, manager="thief")


def test_it_touches_no_node(boot_host: Cluster, unique: str) -> None:
    with pytest.raises(Refused, match="cannot create resource"):
        boot_host.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}})
