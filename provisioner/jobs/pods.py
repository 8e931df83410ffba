"""What a pod is to us: whether it runs, whether it is a job, whether a drain has to end it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import Any, Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.contract import (
    DO_NOT_DISRUPT_ANNOTATION,
    FOREIGN_DO_NOT_DISRUPT_ANNOTATIONS,
    POD_WARNING_ANNOTATION,
)
from provisioner.api.pools.node_pool import NodePool
from provisioner.api.pools.pool_settings import PodJobs
from provisioner.cluster.source import conditions_of
from provisioner.cluster.trim import IDENTITY, MOST_ENTRIES, VALUE_LETTERS, controller_of, picked
from provisioner.jobs.gangs import GANG_ANNOTATIONS, GANG_LABELS, gang_of
from provisioner.jobs.selectors import Selector, parse_selector

Pod = Mapping[str, Any]

CHECK_LABEL: Final = "provisioner.dev/check"
"""On the pods of our own verification checks, which are no jobs."""

NOT_OVER: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of pods of which something may run."""

OVER: Final = "status.phase!=Running,status.phase!=Pending,status.phase!=Unknown"
"""Field selector of those that are over."""

_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
KUEUE_LABELS: Final = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/prebuilt-workload-name", "kueue.x-k8s.io/podset")
READ_ANNOTATIONS: Final = (
    DO_NOT_DISRUPT_ANNOTATION,
    *FOREIGN_DO_NOT_DISRUPT_ANNOTATIONS,
    POD_WARNING_ANNOTATION,
    *GANG_ANNOTATIONS,
)
MARKS: Final = GANG_LABELS | {*KUEUE_LABELS, CHECK_LABEL}
"""Labels by which a pod is a job, belongs to one, or is none."""
LABEL_BYTES: Final = 4096
"""Of the other labels that a cache keeps of a pod: a pool's selectors may name any."""

_KEPT_METADATA: Final = (*IDENTITY, "creationTimestamp", "deletionTimestamp")
_KEPT_SPEC: Final = ("nodeName", "activeDeadlineSeconds", "schedulingGroup", "workloadRef")
_KEPT_STATUS: Final = ("phase", "startTime")
CPU: Final = "cpu"
_NO: Final = frozenset({"", "0", "false", "no"})


@dataclass(frozen=True)
class JobRules:
    """Which pods of a pool are jobs. `unknown`: selectors that nobody can read, in words: then every pod may be one."""

    selectors: tuple[Selector, ...] = ()
    ignored: tuple[Selector, ...] = ()
    unknown: tuple[str, ...] = ()


def job_rules(pool: NodePool) -> JobRules:
    """The pool's rules, read from its selectors."""
    return _read_rules(pool.name, pool.spec.jobs.kubernetes)


@lru_cache(maxsize=256)
def _read_rules(pool: str, settings: PodJobs) -> JobRules:
    unknown: list[str] = []

    def read(field: str, texts: tuple[str, ...]) -> tuple[Selector, ...]:
        found = []
        for number, text in enumerate(texts):
            try:
                found.append(parse_selector(text))
            except Refused as error:
                unknown.append(f"NodePool {pool}: spec.jobs.kubernetes.{field}[{number}]: {error}")
        return tuple(found)

    selectors = read("selectors", settings.selectors)
    ignored = read("ignoredSelectors", settings.ignored_selectors)
    return JobRules(selectors, ignored, tuple(unknown))


def key_of(pod: Pod) -> str:
    """`namespace/name`."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def node_of(pod: Pod) -> str | None:
    return pod["spec"].get("nodeName") or None


def has_ended(pod: Pod) -> bool:
    """Its containers ended for good: nothing of it runs, however long the object stays."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_terminating(pod: Pod) -> bool:
    return pod["metadata"].get("deletionTimestamp") is not None


def belongs_to_node(pod: Pod) -> bool:
    """A DaemonSet's, or a mirror of a static one: it comes with the node, and ends with it."""
    if _MIRROR_ANNOTATION in annotations_of(pod):
        return True
    return any(owner.get("kind") in ("DaemonSet", "Node") for owner in _controllers(pod))


def is_evictable(pod: Pod) -> bool:
    """Whether a drain has to end it."""
    return not has_ended(pod) and not belongs_to_node(pod)


def is_job(pod: Pod, rules: JobRules) -> bool:
    """Whether it is something that WhenIdle waits for."""
    return not has_ended(pod) and was_job(pod, rules)


def was_job(pod: Pod, rules: JobRules) -> bool:
    """The same, whether it is over or not."""
    if belongs_to_node(pod):
        return False
    if rules.unknown:
        return True
    labels = labels_of(pod)
    if CHECK_LABEL in labels or any(selector.matches(labels) for selector in rules.ignored):
        return False
    if forbids_disruption(pod):
        return True
    if rules.selectors:
        return any(selector.matches(labels) for selector in rules.selectors)
    return requests_gpu(pod) or belongs_to_batch(pod)


def forbids_disruption(pod: Pod) -> bool:
    """Its owner asked, by one of the annotations that the field knows, that nobody evicts it."""
    annotations = annotations_of(pod)
    do_not_disrupt, safe_to_evict = FOREIGN_DO_NOT_DISRUPT_ANNOTATIONS
    return (
        annotations.get(DO_NOT_DISRUPT_ANNOTATION, "").lower() not in _NO
        or annotations.get(do_not_disrupt, "").lower() == "true"
        or annotations.get(safe_to_evict, "").lower() == "false"
    )


def trim_pod(pod: dict[str, Any]) -> dict[str, Any] | None:
    """What has to be known of a pod to find jobs, to warn and to evict them, some 2 KiB each whatever a tenant writes
    into it; None of those that come with their node."""
    if belongs_to_node(pod):
        return None
    spec, status = pod["spec"], pod.get("status") or {}
    conditions = conditions_of(pod, "Ready")
    return {
        "apiVersion": pod["apiVersion"],
        "kind": pod["kind"],
        "metadata": trim_metadata(pod, _KEPT_METADATA, LABEL_BYTES),
        "spec": picked(spec, _KEPT_SPEC) | trim_resources(spec),
        "status": picked(status, _KEPT_STATUS)
        | {"conditions": [picked(each, ("type", "status"), VALUE_LETTERS) for each in conditions[:1]]},
    }


def trim_metadata(pod: Pod, keys: Iterable[str], label_bytes: int) -> dict[str, Any]:
    """Of a pod's metadata `keys`, who controls it, the annotations that are read, and as many labels as the bound
    takes beside `MARKS`. Who writes more of them hides its own job from selectors."""
    return picked(pod["metadata"], keys) | {
        "labels": dict(_few_labels(labels_of(pod), label_bytes)),
        "annotations": picked(annotations_of(pod), READ_ANNOTATIONS, VALUE_LETTERS),
        "ownerReferences": controller_of(pod["metadata"]),
    }


def trim_resources(spec: Mapping[str, Any]) -> dict[str, Any]:
    """CPUs and GPUs that a pod and its containers request."""
    kept: dict[str, Any] = {"resources": _trim_quantities(spec)}
    if spec.get("resourceClaims"):
        kept["resourceClaims"] = [{}]
    for group in ("containers", "initContainers"):
        found = (
            picked(each, ("restartPolicy",)) | {"resources": quantities}
            for each in spec.get(group) or ()
            if (quantities := _trim_quantities(each))
        )
        kept[group] = list(islice(found, MOST_ENTRIES))
    return {key: value for key, value in kept.items() if value}


def _trim_quantities(holder: Mapping[str, Any]) -> dict[str, Any]:
    kept = {}
    for part in ("requests", "limits"):
        named = ((holder.get("resources") or {}).get(part) or {}).items()
        of_interest = (each for each in named if each[0] == CPU or is_gpu(each[0]))
        if quantities := dict(islice(of_interest, MOST_ENTRIES)):
            kept[part] = quantities
    return kept


def _few_labels(labels: Mapping[str, str], most_bytes: int) -> Iterator[tuple[str, str]]:
    """The marks, and of the others as many as the bound takes, by name."""
    left = most_bytes
    for key in sorted(labels, key=lambda key: (key not in MARKS, key)):
        if key not in MARKS:
            left -= len(key) + len(labels[key])
        if left < 0:
            return
        yield key, labels[key]


def belongs_to_batch(pod: Pod) -> bool:
    """A Job's (of any group: Kubeflow's and Ray's among them), a JobSet's, Kueue's, or a member of a gang."""
    if any(owner.get("kind", "").endswith(("Job", "JobSet")) for owner in _controllers(pod)):
        return True
    return any(label in labels_of(pod) for label in KUEUE_LABELS) or gang_of(pod) is not None


def requests_gpu(pod: Pod) -> bool:
    """By extended resources of any container, init containers too, or by claims (dynamic resource allocation)."""
    return bool(pod["spec"].get("resourceClaims")) or next(gpu_requests(pod), None) is not None


def gpu_requests(pod: Pod) -> Iterator[tuple[str, Any]]:
    """Each by its name, with its quantity."""
    spec = pod["spec"]
    for holder in (spec, *spec.get("containers", ()), *(spec.get("initContainers") or ())):
        resources = holder.get("resources") or {}
        for quantities in (resources.get("requests") or {}, resources.get("limits") or {}):
            for name, quantity in quantities.items():
                if is_gpu(name) and str(quantity) != "0":
                    yield name, quantity


def is_gpu(resource: str) -> bool:
    """`nvidia.com/gpu`, its shared and MIG slices, `amd.com/gpu`, `gpu.intel.com/xe`, and any vendor's `…/gpu`."""
    domain, _, name = resource.partition("/")
    if not name:
        return False
    is_mig = domain == "nvidia.com" and name.startswith("mig-")
    return name == "gpu" or name.startswith(("gpu.", "gpu-")) or domain.startswith("gpu.") or is_mig


def began_at(pod: Pod) -> datetime | None:
    """When its kubelet took it up; None if none has."""
    return read_moment((pod.get("status") or {}).get("startTime"))


def ends_at(pod: Pod) -> datetime | None:
    """When its kubelet ends it at the latest, by its deadline; None without one, or before it has begun."""
    began, seconds = began_at(pod), pod["spec"].get("activeDeadlineSeconds")
    if began is None or not isinstance(seconds, int) or seconds <= 0:
        return None
    try:
        return began + timedelta(seconds=seconds)
    except OverflowError:
        return None


def grace_end(pod: Pod) -> datetime | None:
    """Until when a terminating pod may take its time; None if it is not terminating."""
    # The API server writes the end of the grace period into deletionTimestamp.
    text = pod["metadata"].get("deletionTimestamp")
    return parse_time(text) if text else None


def labels_of(pod: Pod) -> Mapping[str, str]:
    return pod["metadata"].get("labels") or {}


def annotations_of(pod: Pod) -> Mapping[str, str]:
    return pod["metadata"].get("annotations") or {}


def read_moment(text: Any) -> datetime | None:
    """A time in a pod; None for what is none: the API server takes the year 0, which is none here."""
    try:
        found = parse_time(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return found if found is not None and found.tzinfo is not None else None


def _controllers(pod: Pod) -> Iterator[Mapping[str, Any]]:
    return (owner for owner in pod["metadata"].get("ownerReferences") or [] if owner.get("controller"))
