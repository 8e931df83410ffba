"""Pods that live and die together: which gang a pod belongs to, by the marks that schedulers and operators put on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_GROUP_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-index"

_LABELS: Final = (
    ("provisioner.dev/gang", "gang"),  # by which a site marks gangs of schedulers that are not known here
    ("jobset.sigs.k8s.io/jobset-name", "JobSet"),
    ("leaderworkerset.sigs.k8s.io/name", "LeaderWorkerSet"),
    ("training.kubeflow.org/job-name", "training job"),
    ("kueue.x-k8s.io/pod-group-name", "Kueue pod group"),
    ("workload.codeflare.dev/appwrapper", "AppWrapper"),
    ("ray.io/cluster", "Ray cluster"),
    ("grove.io/podgang", "PodGang"),
    ("volcano.sh/job-name", "Volcano job"),
)
_ANNOTATIONS: Final = (
    ("kueue.x-k8s.io/workload", "Kueue Workload"),
    ("scheduling.k8s.io/group-name", "PodGroup"),  # Volcano
    ("scheduling.volcano.sh/group-name", "PodGroup"),
    ("volcano.sh/job-name", "Volcano job"),
    ("pod-group-name", "PodGroup"),  # KAI
    ("gang.scheduling.koordinator.sh/name", "Koordinator gang"),
    ("godel.bytedance.com/pod-group-name", "PodGroup"),
    ("armadaproject.io/gangId", "Armada gang"),
)
GANG_ANNOTATIONS: Final = tuple(annotation for annotation, _ in _ANNOTATIONS)
_POD_GROUP_LABELS: Final = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
)


GANG_LABELS: Final = frozenset({_GROUP_INDEX_LABEL, *(label for label, _ in _LABELS), *_POD_GROUP_LABELS})


@dataclass(frozen=True)
class Gang:
    """Equal for all members. `selector` finds them among the pods of the namespace; without one all must be read."""

    namespace: str
    kind: str
    """What it is called in messages."""
    name: str
    selector: str | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.key}"


def gang_of(pod: Mapping[str, Any]) -> Gang | None:
    """The gang of a pod; of several marks the one of the widest gang. None if it stands for itself.

    A plain Job's pods are no gang: whether they need one another is not known, and ending one leaves the others alone.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    namespace: str = metadata["namespace"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    for label, kind in _LABELS:
        if labels.get(label):
            return _replica(_labelled(namespace, kind, label, labels[label]), labels)
    for annotation, kind in _ANNOTATIONS:
        if annotations.get(annotation):
            return Gang(namespace, kind, annotations[annotation])
    for label in _POD_GROUP_LABELS:
        if label in labels:
            return _labelled(namespace, "PodGroup", label, labels[label])
    return _built_in(namespace, spec)


def _labelled(namespace: str, kind: str, label: str, value: str) -> Gang:
    return Gang(namespace, kind, value, f"{label}={value}")


def _replica(gang: Gang, labels: Mapping[str, str]) -> Gang:
    """A LeaderWorkerSet is many gangs, each a leader with its workers."""
    index = labels.get(_GROUP_INDEX_LABEL)
    if gang.kind != "LeaderWorkerSet" or index is None:
        return gang
    return Gang(gang.namespace, gang.kind, f"{gang.name}-{index}", f"{gang.selector},{_GROUP_INDEX_LABEL}={index}")


def _built_in(namespace: str, spec: Mapping[str, Any]) -> Gang | None:
    """Kubernetes' own: `schedulingGroup` since 1.36, `workloadRef` in 1.35 (KEP-4671)."""
    group = (spec.get("schedulingGroup") or {}).get("podGroupName")
    if group:
        return Gang(namespace, "PodGroup", group)
    reference = spec.get("workloadRef")
    if reference:
        parts = (reference.get("name"), reference.get("podGroup"), reference.get("podGroupReplicaKey"))
        return Gang(namespace, "Workload", "-".join(part for part in parts if part))
    return None
