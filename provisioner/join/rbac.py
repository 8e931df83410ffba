"""Who may do what in the cluster for a join: the bootstrap tokens, the join service on the boot hosts, the approver.

The join service may create and delete Secrets of kube-system, the approver may delete them, and neither may read any.
RBAC cannot say which, for the name of a token is not known before it exists: policies hold both to tokens of our own
(`provisioner-boot-limits` and `provisioner-controller-secrets`).
"""

from __future__ import annotations

from typing import Any, Final

from provisioner.cluster.events import CLUSTER_SCOPED_NAMESPACE
from provisioner.cluster.resources import NODE_LEASES
from provisioner.join.certificates.approve import CLIENT_SIGNER, SERVING_SIGNER
from provisioner.join.mint import BOOTSTRAP_GROUP, TOKEN_NAMESPACE

RBAC: Final = "rbac.authorization.k8s.io"
JOIN_SERVICE_ROLE: Final = "provisioner:join-service"
APPROVER_ROLE: Final = "provisioner:join-controller"
BOOTSTRAPPERS_BINDING: Final = "provisioner:bootstrappers"

Object = dict[str, Any]


def _rule(group: str, resources: list[str], verbs: list[str], names: list[str] | None = None) -> Object:
    rule: Object = {"apiGroups": [group], "resources": resources, "verbs": verbs}
    return rule | ({"resourceNames": names} if names else {})


_EVENTS: Final = _rule("", ["events"], ["get", "create", "patch"])

_SERVICE_RULES: Final = [
    _rule("provisioner.dev", ["servers"], ["get", "list", "watch"]),
    _rule("provisioner.dev", ["nodepools", "images"], ["get"]),
    _rule("provisioner.dev", ["servers/status"], ["patch"]),
    _rule("", ["nodes"], ["get"]),
]
_SERVICE_RULES_IN: Final = {
    TOKEN_NAMESPACE: [_rule("", ["secrets"], ["create", "delete"])],
    NODE_LEASES: [_rule("coordination.k8s.io", ["leases"], ["get"])],
    CLUSTER_SCOPED_NAMESPACE: [_EVENTS],
}

_APPROVER_RULES: Final = [
    _rule("provisioner.dev", ["servers", "nodepools", "racks"], ["get", "list", "watch"]),
    _rule("provisioner.dev", ["servers/status"], ["patch"]),
    _rule("", ["nodes"], ["get", "list", "watch", "create", "patch"]),
    _rule("certificates.k8s.io", ["certificatesigningrequests"], ["get", "list", "watch"]),
    _rule("certificates.k8s.io", ["certificatesigningrequests/approval"], ["update"]),
    _rule("certificates.k8s.io", ["signers"], ["approve"], [CLIENT_SIGNER, SERVING_SIGNER]),
]
_APPROVER_RULES_IN: Final = {
    TOKEN_NAMESPACE: [_rule("", ["secrets"], ["delete"])],
    CLUSTER_SCOPED_NAMESPACE: [_EVENTS],
}


def rbac_objects(*, service_subject: Object, controller_subject: Object) -> list[Object]:
    """Roles and bindings. Subjects are RBAC subjects: a ServiceAccount, or the User of a boot host's certificate."""
    return [
        # What a bootstrap token may do: make a CSR and read its answer. There is no binding to
        # system:certificates.k8s.io:certificatesigningrequests:nodeclient: nothing is approved but by our approver.
        _binding(
            BOOTSTRAPPERS_BINDING,
            "system:node-bootstrapper",
            {"kind": "Group", "apiGroup": RBAC, "name": BOOTSTRAP_GROUP},
        ),
        *_granted(JOIN_SERVICE_ROLE, _SERVICE_RULES, _SERVICE_RULES_IN, service_subject),
        *_granted(APPROVER_ROLE, _APPROVER_RULES, _APPROVER_RULES_IN, controller_subject),
    ]


def _granted(name: str, rules: list[Object], rules_in: dict[str, list[Object]], subject: Object) -> list[Object]:
    """`rules` in all of the cluster, `rules_in` in the namespaces that are its keys."""
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        _binding(name, name, subject),
        *(made for namespace, local in rules_in.items() for made in _granted_in(namespace, name, local, subject)),
    ]


def _granted_in(namespace: str, name: str, rules: list[Object], subject: Object) -> list[Object]:
    metadata = {"name": name, "namespace": namespace}
    return [
        {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
            "subjects": [subject],
        },
    ]


def _binding(name: str, role: str, subject: Object) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
