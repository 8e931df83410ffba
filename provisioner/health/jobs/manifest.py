"""The Job of a check: the pool's template, made to run once, on one node, under every taint. Pure."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from provisioner.api.pools.pool_settings import JobCheck

CHECK_LABEL: Final = "provisioner.dev/check"
SERVER_LABEL: Final = "provisioner.dev/server"
BOOT_ANNOTATION: Final = "provisioner.dev/boot-id"
ATTEMPT_ANNOTATION: Final = "provisioner.dev/attempt"
KEEP_SECONDS: Final = 24 * 3600
"""How long a finished Job and its logs may be read; it goes earlier when the server boots anew."""

_SPEC_OF_ITS_OWN: Final = (
    "selector",
    "manualSelector",
    "suspend",
    "completionMode",
    "successPolicy",
    "podFailurePolicy",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "podReplacementPolicy",
    "managedBy",
)
"""Fields with which a Job would be something other than one pod that runs once."""


def job_name(check: str, server: str, boot_id: str, attempt: int | str) -> str:
    """The same for the same round: a Job that exists already is the one that was to be made."""
    digest = hashlib.sha256("\0".join((check, server, boot_id, str(attempt))).encode()).hexdigest()[:12]
    return f"{_short(check)}-{_short(server)}-{digest}"


def render_job(check: JobCheck, server: str, boot_id: str, attempt: int) -> dict[str, Any]:
    """The body to create. What the template says of node, tolerations, restarts and parallelism is replaced."""
    template = copy.deepcopy(dict(check.template))
    labels = {CHECK_LABEL: check.name, SERVER_LABEL: server}
    spec = _object(template.get("spec"))
    for field in _SPEC_OF_ITS_OWN:
        spec.pop(field, None)
    pod = _object(spec.get("template"))
    pod["metadata"] = _labelled(_object(pod.get("metadata")), labels)
    pod["spec"] = _pinned(_object(pod.get("spec")), server)
    spec |= {
        "template": pod,
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 0,
        "activeDeadlineSeconds": check.timeout_seconds,
        "ttlSecondsAfterFinished": KEEP_SECONDS,
    }
    metadata = _labelled(_object(template.get("metadata")), labels)
    said = {BOOT_ANNOTATION: boot_id, ATTEMPT_ANNOTATION: str(attempt)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name(check.name, server, boot_id, attempt),
            "namespace": check.namespace,
            "labels": metadata["labels"],
            "annotations": {**_object(metadata.get("annotations")), **said},
        },
        "spec": spec,
    }


def _pinned(spec: dict[str, Any], server: str) -> dict[str, Any]:
    """On that node and no other, whatever taints it has: its own, ours, a cordon, the pool's."""
    for field in ("nodeName", "nodeSelector", "topologySpreadConstraints"):
        spec.pop(field, None)
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [server]}]}
    affinity = _object(spec.get("affinity"))
    affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    return {**spec, "affinity": affinity, "tolerations": [{"operator": "Exists"}], "restartPolicy": "Never"}


def _labelled(metadata: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    return {**metadata, "labels": {**_object(metadata.get("labels")), **labels}}


def _object(value: Any) -> dict[str, Any]:
    """What is no object is left to the API server's words about what is missing."""
    return dict(value) if isinstance(value, Mapping) else {}


def _short(name: str) -> str:
    """Job names have at most 63 characters, so that their pods' labels have, too."""
    return name[:24].replace(".", "-").rstrip("-")
