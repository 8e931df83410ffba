"""Pods, budgets and pools as the tests need them."""

from __future__ import annotations

import uuid
from typing import Any

from provisioner.api.machinery.meta import ObjectMeta
from provisioner.api.pools.node_pool import NodePool, NodePoolSpec
from provisioner.api.pools.pool_settings import JobSettings, PodJobs, SlurmJobs

Body = dict[str, Any]

GPU = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}


def pool(*, selectors: tuple[str, ...] = (), ignored: tuple[str, ...] = (), slurm: SlurmJobs | None = None) -> NodePool:
    jobs = JobSettings(kubernetes=PodJobs(selectors=selectors, ignored_selectors=ignored), slurm=slurm)
    return NodePool(metadata=ObjectMeta(name="gpu"), spec=NodePoolSpec(image_ref="gpu-1", jobs=jobs))


def pod(
    name: str = "web",
    *,
    node: str | None = "r01-u01",
    namespace: str = "ml",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: str | None = None,
    resources: Body | None = None,
    phase: str = "Running",
    ready: bool = True,
    deleted: str | None = None,
    began: str | None = None,
    spec: Body | None = None,
) -> Body:
    """A pod as the API server gives it. `owner`: kind of its controller. `deleted`: when its grace period ends."""
    metadata: Body = {
        "name": name,
        "namespace": namespace,
        "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, namespace + name)),
    }
    metadata |= {"labels": labels} if labels else {}
    metadata |= {"annotations": annotations} if annotations else {}
    metadata |= {"deletionTimestamp": deleted} if deleted else {}
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "name": "owner", "controller": True}]
    container: Body = {"name": "main", "image": "example.invalid/none"} | (
        {"resources": resources} if resources else {}
    )
    whole: Body = {"containers": [container]} | ({"nodeName": node} if node else {}) | (spec or {})
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": whole,
        "status": {"phase": phase, "conditions": conditions} | ({"startTime": began} if began else {}),
    }


def gang_member(name: str, *, node: str | None = "r01-u01", gang: str = "train", **more: Any) -> Body:
    """A pod of the JobSet `gang` with eight GPUs."""
    labels = {"jobset.sigs.k8s.io/jobset-name": gang} | more.pop("labels", {})
    return pod(name, node=node, labels=labels, owner="Job", resources=GPU, **more)


def budget(
    name: str = "keep",
    *,
    namespace: str = "ml",
    labels: dict[str, str] | None = None,
    allowed: int = 0,
    healthy: int = 2,
    desired: int = 2,
    generation: int = 1,
    observed: int = 1,
    policy: str | None = None,
) -> Body:
    """A PodDisruptionBudget with its status; without `labels` it covers the whole namespace."""
    spec: Body = {"selector": {"matchLabels": labels} if labels else {}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace, "generation": generation},
        "spec": spec | ({"unhealthyPodEvictionPolicy": policy} if policy else {}),
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "observedGeneration": observed,
        },
    }
