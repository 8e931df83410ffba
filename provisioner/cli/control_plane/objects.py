"""The few objects that a cluster must hold before this project works in it; `production_objects_text()` prints them."""

from __future__ import annotations

from typing import Any, Final

import yaml

from provisioner.cluster.resources import SYSTEM

KUBELET_CLIENT_USER: Final = "kube-apiserver-kubelet-client"
RBAC: Final = "rbac.authorization.k8s.io"

CLUSTER_OBJECTS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}},
    ),
    (
        # `kubectl logs` and `exec`: the API server is a user like any other at the kubelet.
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "provisioner:apiserver-kubelet-client"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:kubelet-api-admin"},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": KUBELET_CLIENT_USER}],
        },
    ),
)


def production_objects_text() -> str:
    """The objects as YAML documents for `kubectl apply -f -`."""
    return yaml.safe_dump_all((body for _, body in CLUSTER_OBJECTS), sort_keys=False)
