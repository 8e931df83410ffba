"""Applying the manifests over those of a release whose accounts were not yet apart closes what that one had opened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.cli.service.manifests import all_manifests
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import SYSTEM, ResourceType
from tests.people import until

RBAC = "rbac.authorization.k8s.io"
REVIEWS = ResourceType("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews")
ROLE_BINDINGS = ResourceType(RBAC, "v1", "RoleBinding", "rolebindings", namespaced=True)
CLUSTER_ROLE_BINDINGS = ResourceType(RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings")
ANYWHERE = ""

FORMER: dict[tuple[str, str], tuple[str, str, str]] = {
    ("provisioner:join-controller", ANYWHERE): ("certificates.k8s.io", "certificatesigningrequests/approval", "update"),
    ("provisioner:join-service", ANYWHERE): ("provisioner.dev", "servers/status", "patch"),
    ("provisioner:join-controller", "kube-system"): ("", "secrets", "delete"),
    ("provisioner:join-controller", "default"): ("", "events", "create"),
    ("provisioner:join-service", "kube-system"): ("", "secrets", "create"),
    ("provisioner:join-service", "kube-node-lease"): ("coordination.k8s.io", "leases", "get"),
    ("provisioner:join-service", "default"): ("", "events", "patch"),
    ("provisioner-controller", "provisioner-checks"): ("batch", "jobs", "create"),
    ("provisioner-bmc-secrets", SYSTEM): ("", "secrets", "patch"),
}
"""What such a release granted, by role and namespace: group, resource, verb. A Secret is the answer to its patch."""


@pytest.fixture
def lee(cluster: Cluster, control_plane: ControlPlane) -> Iterator[Cluster]:
    """Somebody to whom all those roles were bound, and who had what they gave."""
    for (name, namespace), (group, resource, verb) in FORMER.items():
        rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        cluster.apply(role(name, namespace) | {"rules": [rule]}, manager="tests")
        cluster.apply(binding(name, namespace), manager="tests")
    somebody = Cluster.connect(control_plane.kubeconfig, as_user="lee", as_groups=("system:authenticated",))
    until(lambda: rights_of(somebody) == set(FORMER))
    yield somebody
    for name, namespace in FORMER:
        cluster.apply(role(name, namespace) | {"rules": []}, manager="tests")
        kind = ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS
        cluster.delete(kind, f"former:{name}", namespace=namespace or None)


def role(name: str, namespace: str) -> dict[str, object]:
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata(name, namespace)}


def binding(name: str, namespace: str) -> dict[str, object]:
    kind = "Role" if namespace else "ClusterRole"
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata(f"former:{name}", namespace),
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "lee"}],
    }


def metadata(name: str, namespace: str) -> dict[str, str]:
    return {"name": name} | ({"namespace": namespace} if namespace else {})


def rights_of(somebody: Cluster) -> set[tuple[str, str]]:
    """Those roles whose right `somebody` has."""
    found = set()
    for (name, namespace), (group, resource, verb) in FORMER.items():
        plural, _, subresource = resource.partition("/")
        asked = {"group": group, "resource": plural, "subresource": subresource, "verb": verb, "namespace": namespace}
        body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, "metadata": {}}
        if somebody.create(REVIEWS, body | {"spec": {"resourceAttributes": asked}})["status"]["allowed"]:
            found.add((name, namespace))
    return found


def test_applying_the_manifests_takes_away_what_an_earlier_release_granted(cluster: Cluster, lee: Cluster) -> None:
    for manifest in all_manifests():
        if manifest["kind"] in ("Role", "ClusterRole"):
            cluster.apply(manifest, manager="tests")
    until(lambda: rights_of(lee) == set())


def test_roles_of_earlier_releases_are_shipped_empty() -> None:
    shipped = {
        (m["metadata"]["name"], m["metadata"].get("namespace", ANYWHERE)): m["rules"]
        for m in all_manifests()
        if m["kind"] in ("Role", "ClusterRole") and not m.get("rules", True)
    }
    assert shipped == {key: [] for key in FORMER}
