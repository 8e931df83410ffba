"""People, nodes and accounts with certificates of their own, and when the policies are in force."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from provisioner.api.errors import Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES
from provisioner.lab.control_plane.pki import Authority
from provisioner.lab.control_plane.plane import ControlPlane, render_kubeconfig


def of_account(name: str) -> str:
    """The user name of one of the services' accounts."""
    return f"system:serviceaccount:provisioner-system:provisioner-{name}"


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
    """Give `user` one of the shipped ClusterRoles, as an administrator would."""
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
