"""People, nodes and accounts with certificates of their own, and when the policies are in force."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.control_plane.pki import Authority
from lab.control_plane.plane import ControlPlane, render_kubeconfig
from provisioner.api.machinery.errors import Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import CLUSTER_ROLES, CONFIG_MAPS, NODES, ResourceType


def of_account(name: str) -> str:
    """The user name of one of the services' accounts."""
    return f"system:serviceaccount:provisioner-system:provisioner-{name}"


ADMISSION = "admissionregistration.k8s.io"
POLICIES = ResourceType(ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies")
BINDINGS = ResourceType(ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings")
REVIEWS = ResourceType("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews")
BOOT, CONTROLLER = of_account("boot"), of_account("controller")
IN_FORCE_SECONDS = 180


def kubeconfig_of(plane: ControlPlane, directory: Path, user: str, *, group: str | None = None) -> Path:
    """A kubeconfig with a certificate for `user`."""
    name = f"person-{hashlib.sha256(user.encode()).hexdigest()[:12]}"
    pair = Authority.create(plane.directory / "pki", "ca").issue(name, user, organization=group)
    path = directory / f"{name}.kubeconfig"
    path.write_text(render_kubeconfig(plane.server_url, plane.ca_pem.encode(), pair, user=name))
    return path


def bind(admin: Cluster, role: str, user: str) -> None:
    """Give `user` one of the shipped ClusterRoles, as an administrator would; it is in force."""
    rbac = "rbac.authorization.k8s.io"
    admin.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"{role}-{user}"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "apiGroup": rbac, "name": user}],
        },
        manager="tests",
    )
    rules = admin.get(CLUSTER_ROLES, role)["rules"]
    first = next(rule for rule in rules if "resources" in rule and "resourceNames" not in rule)
    resource, _, subresource = first["resources"][0].partition("/")
    asked = {"group": first["apiGroups"][0], "resource": resource, "verb": first["verbs"][0]}
    asked |= {"subresource": subresource} if subresource else {}
    review = {"metadata": {}, "spec": {"user": user, "resourceAttributes": asked}}
    body = {"apiVersion": REVIEWS.api_version, "kind": REVIEWS.kind, **review}
    until(lambda: bool(admin.create(REVIEWS, body)["status"]["allowed"]))


def bind_in(admin: Cluster, namespace: str, role: str, user: str) -> None:
    """Give `user` one of the shipped Roles of `namespace`."""
    rbac = "rbac.authorization.k8s.io"
    admin.apply(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{role}-{user}", "namespace": namespace},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": role},
            "subjects": [{"kind": "User", "apiGroup": rbac, "name": user}],
        },
        manager="tests",
    )


def wait_for_all_policies(admin: Cluster) -> None:
    """The API server takes up policies and bindings a moment after they were applied, and those first that came first:
    once one more is in force, all are."""
    name = "the-last-of-all"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    policy = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "the-probe", "expression": f"object.metadata.name == '{name}'"}],
        "validations": [{"expression": "false", "message": "all policies are in force"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}

    def is_in_force() -> bool:
        try:
            admin.create(CONFIG_MAPS, probe, dry_run=True)
        except Refused as error:
            return "all policies are in force" in str(error)
        return False

    for type_, spec in ((POLICIES, policy), (BINDINGS, binding)):
        body = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": {"name": name}, "spec": spec}
        admin.apply(body, manager="tests")
    until(is_in_force)
    for type_ in (BINDINGS, POLICIES):
        admin.delete(type_, name)


def wait_for_policies(admin: Cluster, somebody: Cluster, probe: str) -> None:
    """Wait until the policies are in force for `somebody`, who may write conditions."""
    admin.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": probe}}, manager="test")

    def refused(patch: dict[str, Any], *words: str) -> bool:
        """Of several policies that refuse it the API server tells any one."""
        try:
            somebody.strategic_patch(NODES, probe, patch, subresource="status", dry_run=True)
        except Refused as error:
            return any(each in str(error) for each in words)
        return False

    until(lambda: refused(condition("provisioner.dev/RebootRequested", "Soon"), "expected WhenIdle"))
    alone = "nothing else of its status"
    until(lambda: refused({"metadata": {"annotations": {"provisioner.dev/boot-intent": "{}"}}}, "boot-intent", alone))
    until(lambda: refused({"metadata": {"labels": {"a": "b"}}}, alone))
    admin.delete(NODES, probe)


def condition(type_: str, reason: str, message: str = "", status: str = "True") -> dict[str, Any]:
    """The patch of a Node's status that sets one condition."""
    found = {"type": type_, "status": status, "reason": reason, "message": message}
    return {"status": {"conditions": [found]}}


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + IN_FORCE_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.3)
