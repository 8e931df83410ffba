"""The few objects that a cluster must hold before this project works in it; the lab creates them at every start.

In production they are applied once: `production_objects_text()` prints them.
"""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

from provisioner.api.errors import NeedsHuman
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
    import yaml

    return yaml.safe_dump_all((body for _, body in CLUSTER_OBJECTS), sort_keys=False)


def apply_cluster_objects(server_url: str, tls: ssl.SSLContext) -> None:
    """Create what is missing; what exists is left as it is. Raises: NeedsHuman in the API server's words."""
    host = urlsplit(server_url)
    connection = http.client.HTTPSConnection(host.hostname or "", host.port, timeout=30, context=tls)
    try:
        for path, body in CLUSTER_OBJECTS:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = response.read().decode(errors="replace")
            if response.status not in (http.HTTPStatus.CREATED, http.HTTPStatus.CONFLICT):
                name = f"{body['kind']} {body['metadata']['name']}"
                raise NeedsHuman(f"{name} not created: {response.status} {answer}", hint="see the API server's log")
    finally:
        connection.close()
