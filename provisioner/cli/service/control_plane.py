"""What a production cluster must set for this project, each with its reason; the lab's control plane runs the same.

`production_flags_text()` prints them for an operator to copy. Flags that only a lab has (addresses, paths, one
replica) are in `lab/control_plane/commands.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import click
import yaml

from provisioner.cli import printer
from provisioner.cluster.resources import SYSTEM

# The few objects that a cluster must hold before this project works in it; `production_objects_text()` prints them.

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


@dataclass(frozen=True)
class Flag:
    """One flag of a control plane component, and why this project needs it."""

    flag: str
    reason: str


CONTROLLERS: Final = (
    "bootstrap-signer-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "daemonset-controller",
    "deployment-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "taint-eviction-controller",
    "token-cleaner-controller",
    "validatingadmissionpolicy-status-controller",
)
"""What the lab runs. Not in it: cloud, volumes, autoscaling — and the approver of certificate requests, see below."""

PRODUCTION_FLAGS: Final[dict[str, tuple[Flag, ...]]] = {
    "kube-apiserver": (
        Flag("--enable-bootstrap-token-auth=true", "a server joins with a token that works once; see provisioner.join"),
        Flag("--authorization-mode=Node,RBAC", "a node may read and write only what its own pods need"),
        Flag("--enable-admission-plugins=NodeRestriction", "a node may change its own Node only, and not all of it"),
        Flag(
            "--authentication-config=authentication.yaml",
            "nobody without credentials reaches more than /livez, /readyz and /healthz",
        ),
        Flag("--audit-policy-file=audit-policy.yaml", "who asked for a reboot, a token or a certificate is on record"),
        Flag("--audit-log-path=/var/log/kubernetes/audit.log", "where that record is written"),
        Flag("--audit-log-maxsize=100", "rotate at 100 MB"),
        Flag("--audit-log-maxbackup=10", "and keep ten"),
        Flag("--event-ttl=24h", "a boot that failed at night is still told by `kubectl describe` in the morning"),
        Flag("--kubelet-preferred-address-types=InternalIP", "node names are not in DNS"),
        Flag("--kubelet-certificate-authority=ca.crt", "`kubectl logs` and `exec` reach an approved kubelet only"),
        Flag(
            "--allow-privileged=true",
            "CNI, device plugins and the shell of break-glass are privileged pods; who may make one, PodSecurity says",
        ),
        Flag("--profiling=false", "nothing is served that nobody needs"),
    ),
    "kube-controller-manager": (
        Flag(
            "--controllers=*,token-cleaner-controller,bootstrap-signer-controller,"
            "-certificatesigningrequest-approving-controller",
            "expired tokens are removed; certificates are approved by this project's approver alone, which ties a"
            " request to the server and the boot it came from",
        ),
        Flag(
            "--cluster-signing-duration=24h",
            "a certificate cannot be revoked: it dies soon instead; kubelets renew theirs (rotateCertificates)",
        ),
        Flag("--use-service-account-credentials=true", "the audit log tells the controllers apart"),
        Flag("--profiling=false", "nothing is served that nobody needs"),
    ),
}


def production_flags_text() -> str:
    """The flags with their reasons, as text: `# component`, then one `flag   # reason` a line; then the two files."""
    lines = []
    for component, flags in PRODUCTION_FLAGS.items():
        width = min(60, max(len(flag.flag) for flag in flags))
        lines += [f"# {component}", *(f"{flag.flag:<{width}}  # {flag.reason}" for flag in flags), ""]
    lines += ["# authentication.yaml", yaml.safe_dump(AUTHENTICATION, sort_keys=False)]
    lines += ["# audit-policy.yaml", yaml.safe_dump(AUDIT_POLICY, sort_keys=False)]
    return "\n".join(lines)


AUTHENTICATION: Final[dict[str, Any]] = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AuthenticationConfiguration",
    "anonymous": {"enabled": True, "conditions": [{"path": path} for path in ("/livez", "/readyz", "/healthz")]},
}

AUDIT_POLICY: Final[dict[str, Any]] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # Secrets hold BMC passwords and bootstrap tokens: who touched them is written, never what is in them.
        {"level": "Metadata", "resources": [{"group": "", "resources": ["secrets", "serviceaccounts/token"]}]},
        {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        {"level": "None", "resources": [{"group": "", "resources": ["events"]}, {"group": "events.k8s.io"}]},
        {"level": "None", "nonResourceURLs": ["/livez*", "/readyz*", "/healthz*", "/openapi/*", "/version"]},
        {"level": "RequestResponse", "resources": [{"group": "certificates.k8s.io"}]},
        # A kubelet writes its Node's status all the time; what a person or a tool asks for there is kept whole.
        {
            "level": "Metadata",
            "userGroups": ["system:nodes"],
            "resources": [{"group": "", "resources": ["nodes/status"]}],
        },
        {
            "level": "Request",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [
                {"group": "provisioner.dev"},
                {"group": "", "resources": ["nodes", "nodes/status", "pods/eviction"]},
            ],
        },
        # Who entered a container, also by GET: attaching is how a shell on a node is opened.
        {
            "level": "Metadata",
            "resources": [
                {
                    "group": "",
                    "resources": ["pods/attach", "pods/exec", "pods/portforward", "nodes/proxy", "pods/proxy"],
                }
            ],
        },
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "Metadata"},
    ],
}


@click.command("control-plane-flags")
def control_plane_flags() -> None:
    """Print the flags and objects that a control plane of your own needs, with the reason for each."""
    printer.show(production_flags_text())
    printer.show(production_objects_text())
