"""What an account asks of the API server, counted there: a FlowSchema for each verb and resource tells them apart.

Every request is counted, reads and refused ones too, whichever process makes it and whoever impersonates the account.
They are dispatched as all who have no FlowSchema of their own.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from typing import Final

from lab.binaries.obtain import Binaries
from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster

_KINDS: Final = {
    "maintenances": "provisioner.dev",
    "servers": "provisioner.dev",
    "servers/status": "provisioner.dev",
    "nodepools/status": "provisioner.dev",
    "nodes": "",
    "events": "",
}
_VERBS: Final = ("create", "patch", "get")
_PREFIX: Final = "asked"
_METRIC: Final = "apiserver_flowcontrol_dispatched_requests_total{"


def count_account(cluster: Cluster, user: str) -> None:
    """From now on, what `user` asks is counted."""
    precedence = 100
    for resource, group in _KINDS.items():
        for verb in _VERBS:
            _make_schema(cluster, user, f"{verb}.{resource.replace('/', '.')}", precedence, verb, group, resource)
            precedence += 1
    _make_schema(cluster, user, "other.other", precedence, "*", "*", "*")


def requests_of_account(plane: ControlPlane, binaries: Binaries) -> Counter[tuple[str, str]]:
    """By verb and resource, so far. Verbs are the API server's: an apply is a patch."""
    found: Counter[tuple[str, str]] = Counter()
    command = [binaries.kubectl, f"--kubeconfig={plane.kubeconfig}", "get", "--raw", "/metrics"]
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        if not line.startswith(_METRIC):
            continue
        schema = re.search(rf'flow_schema="{_PREFIX}\.(\w+)\.([\w.]+)"', line)
        if schema is not None:
            found[schema[1], schema[2].replace(".", "/")] += int(float(line.rpartition(" ")[2]))
    return found


def _make_schema(cluster: Cluster, user: str, name: str, precedence: int, verb: str, group: str, resource: str) -> None:
    rule = {"verbs": [verb], "apiGroups": [group], "resources": [resource], "clusterScope": True, "namespaces": ["*"]}
    subject = {"kind": "User", "user": {"name": user}}
    rules = {"subjects": [subject], "resourceRules": [rule]}
    if resource == "*":
        rules["nonResourceRules"] = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    spec = {
        "priorityLevelConfiguration": {"name": "global-default"},
        "matchingPrecedence": precedence,
        "rules": [rules],
    }
    body = {"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema"}
    cluster.apply({**body, "metadata": {"name": f"{_PREFIX}.{name}"}, "spec": spec}, manager="bench")
