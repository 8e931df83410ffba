"""The right of a DPU to read its own DPUNetwork, and to say what it found in its kernel: by name, and of no other.

RBAC alone can limit what is read, and only by the names in a role; so each DPU has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from provisioner.api.machinery.schema import GROUP
from provisioner.cluster.client import Cluster
from provisioner.cluster.own_writes import OwnWrites
from provisioner.cluster.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ResourceType
from provisioner.cluster.source import Object, Source
from provisioner.network.control.records.informers import NetworkInformers
from provisioner.network.control.records.writes import MANAGER

RBAC: Final = "rbac.authorization.k8s.io"
DPU_LABEL: Final = "provisioner.dev/dpu"


def grant_name(dpu: str) -> str:
    """Name of both the role and its binding."""
    return f"provisioner-dpu-{dpu}"


def role_of(dpu: str) -> dict[str, Any]:
    """What the agent on the DPU does: it follows one object, and acknowledges it."""
    named = {"apiGroups": [GROUP], "resourceNames": [dpu]}
    return {
        "apiVersion": CLUSTER_ROLES.api_version,
        "kind": CLUSTER_ROLES.kind,
        "metadata": {"name": grant_name(dpu), "labels": {DPU_LABEL: dpu}},
        "rules": [
            {**named, "resources": ["dpunetworks"], "verbs": ["get", "list", "watch"]},
            {**named, "resources": ["dpunetworks/status"], "verbs": ["patch"]},
        ],
    }


def binding_of(dpu: str) -> dict[str, Any]:
    return {
        "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
        "kind": CLUSTER_ROLE_BINDINGS.kind,
        "metadata": {"name": grant_name(dpu), "labels": {DPU_LABEL: dpu}},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": grant_name(dpu)},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": f"system:node:{dpu}"}],
    }


class Grants:
    """Roles and bindings as they are in the caches, and as they are to be."""

    def __init__(self, cluster: Cluster, caches: NetworkInformers, own: OwnWrites) -> None:
        self._cluster = cluster
        self._caches = caches
        self._own = own

    def source_of(self, type_: ResourceType) -> Source:
        return self._caches.roles if type_ == CLUSTER_ROLES else self._caches.bindings

    def are_there(self, dpu: str) -> bool:
        name = grant_name(dpu)
        return any(self.source_of(each).get(name) is not None for each in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS))

    def give(self, dpu: str) -> None:
        """Write what is missing or other than it should be. Raises: Retryable, Refused."""
        for wanted in (role_of(dpu), binding_of(dpu)):
            type_ = CLUSTER_ROLES if wanted["kind"] == CLUSTER_ROLES.kind else CLUSTER_ROLE_BINDINGS
            found = self.source_of(type_).get(grant_name(dpu))
            if found is None or _says_other(found, wanted):
                written = self._cluster.apply(wanted, manager=MANAGER)
                self._own.note(dpu, type_, written)

    def take(self, dpu: str) -> None:
        """Take both away."""
        name = grant_name(dpu)
        if self._caches.bindings.get(name) is not None:
            self._cluster.delete(CLUSTER_ROLE_BINDINGS, name)
        if self._caches.roles.get(name) is not None:
            self._cluster.delete(CLUSTER_ROLES, name)


def _says_other(found: Object, wanted: Mapping[str, Any]) -> bool:
    return any(found.get(key) != wanted[key] for key in ("rules", "roleRef", "subjects") if key in wanted)
