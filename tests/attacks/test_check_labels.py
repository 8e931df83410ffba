"""Who may edit a namespace labels no Job and no pod as a check of ours, and keeps no server out of use by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api.machinery.errors import Forbidden
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import JOBS, NAMESPACES, PODS, ROLE_BINDINGS, ROLES
from provisioner.health.jobs.manifest import CHECK_LABEL, SERVER_LABEL, job_name, render_job
from tests.health.objects import job_check
from tests.people import kubeconfig_of, until

LABELS = {CHECK_LABEL: "gpu-burn", SERVER_LABEL: "r01-u01"}
POD = {"containers": [{"name": "c", "image": "busybox"}], "restartPolicy": "Never"}
MAY_NOT = "may not label a"


def job(namespace: str, labels: dict[str, str], of_pod: dict[str, str] | None = None) -> dict[str, Any]:
    said = {"provisioner.dev/boot-id": "old", "provisioner.dev/attempt": "1"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name("gpu-burn", "r01-u01", "old", 1),
            "namespace": namespace,
            "labels": labels,
            "annotations": said,
        },
        "spec": {"suspend": True, "template": {"metadata": {"labels": of_pod or {}}, "spec": POD}},
    }


def pod(namespace: str, **metadata: Any) -> dict[str, Any]:
    named = {"name": "p", "namespace": namespace, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": POD}


def owned_by(kind: str, version: str) -> list[dict[str, Any]]:
    uid = "00000000-0000-4000-8000-000000000000"
    return [{"apiVersion": version, "kind": kind, "name": "o", "uid": uid, "controller": True}]


@pytest.fixture
def namespace(cluster: Cluster, unique: str) -> Iterator[str]:
    cluster.create(NAMESPACES, {"metadata": {"name": unique}})
    yield unique
    cluster.delete(NAMESPACES, unique)


@pytest.fixture
def tenant(cluster: Cluster, control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Cluster:
    return make_tenant(cluster, control_plane, namespace, tmp_path)


def make_tenant(cluster: Cluster, control_plane: ControlPlane, namespace: str, folder: Path) -> Cluster:
    """May write Jobs and pods of the namespace, as by the role `edit`."""
    user = f"{namespace}-user"
    rules = [
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
    ]
    metadata = {"name": "edit", "namespace": namespace}
    cluster.create(ROLES, {"metadata": metadata, "rules": rules})
    subject = {"kind": "User", "apiGroup": ROLES.group, "name": user}
    role = {"apiGroup": ROLES.group, "kind": "Role", "name": "edit"}
    cluster.create(ROLE_BINDINGS, {"metadata": metadata, "roleRef": role, "subjects": [subject]})
    found = Cluster.connect(kubeconfig_of(control_plane, folder, user))

    def may_look() -> bool:
        try:
            found.list(JOBS, namespace=namespace)
        except Forbidden:
            return False
        return True

    until(may_look)
    return found


@pytest.mark.parametrize("part", ["the Job", "its pods", "a pod"])
def test_a_tenant_labels_nothing_as_a_check(tenant: Cluster, namespace: str, part: str) -> None:
    bodies = {
        "the Job": job(namespace, LABELS),
        "its pods": job(namespace, {"app": "train"}, LABELS),
        "a pod": pod(namespace, labels=LABELS),
    }
    with pytest.raises(Forbidden, match=MAY_NOT):
        tenant.create(PODS if part == "a pod" else JOBS, bodies[part], dry_run=True)


def test_a_tenant_labels_none_of_its_own_as_a_check_afterwards(tenant: Cluster, namespace: str) -> None:
    name = tenant.create(JOBS, job(namespace, {"app": "train"}))["metadata"]["name"]
    tenant.create(PODS, pod(namespace))
    for patch in ({"metadata": {"labels": LABELS}}, {"spec": {"template": {"metadata": {"labels": LABELS}}}}):
        with pytest.raises(Forbidden, match=MAY_NOT):
            tenant.patch(JOBS, name, patch, namespace=namespace, dry_run=True)
    with pytest.raises(Forbidden, match=MAY_NOT):
        tenant.patch(PODS, "p", {"metadata": {"labels": LABELS}}, namespace=namespace, dry_run=True)


def test_no_other_controller_makes_a_labelled_pod_or_job_for_a_tenant(cluster: Cluster, namespace: str) -> None:
    replicas = cluster.acting_as("system:serviceaccount:kube-system:replicaset-controller")
    of_set = pod(namespace, labels=LABELS, ownerReferences=owned_by("ReplicaSet", "apps/v1"))
    job_controller = cluster.acting_as("system:serviceaccount:kube-system:job-controller")
    of_job = pod(namespace, labels=LABELS, ownerReferences=owned_by("Job", "batch/v1"))
    for controller, body in ((replicas, of_set), (replicas, of_job), (job_controller, of_set)):
        with pytest.raises(Forbidden, match=MAY_NOT):
            controller.create(PODS, body, dry_run=True)
    cron = cluster.acting_as("system:serviceaccount:kube-system:cronjob-controller")
    with pytest.raises(Forbidden, match=MAY_NOT):
        cron.create(JOBS, job(namespace, {}, LABELS), dry_run=True)


def test_what_has_the_label_already_may_be_changed_otherwise_and_lose_it(
    tenant: Cluster, cluster: Cluster, namespace: str
) -> None:
    name = cluster.create(JOBS, job(namespace, LABELS, LABELS))["metadata"]["name"]
    cluster.create(PODS, pod(namespace, labels=LABELS))
    for change in ({"annotations": {"a": "b"}}, {"labels": {CHECK_LABEL: None}}):
        tenant.patch(JOBS, name, {"metadata": change}, namespace=namespace)
        tenant.patch(PODS, "p", {"metadata": change}, namespace=namespace)


def test_a_tenants_own_job_and_a_check_of_ours_with_its_pod_are_made(
    tenant: Cluster, cluster: Cluster, account: Callable[[str], Cluster], namespace: str, unique: str
) -> None:
    tenant.create(JOBS, job(namespace, {"app": "train"}, {"app": "train"}), dry_run=True)
    tenant.create(PODS, pod(namespace, labels={"app": "train"}), dry_run=True)
    check = render_job(job_check(template={"spec": {"template": {"spec": POD}}}), unique, "boot", 1)
    account("health").create(JOBS, check, dry_run=True)
    job_controller = cluster.acting_as("system:serviceaccount:kube-system:job-controller")
    job_controller.create(
        PODS, pod(namespace, labels=LABELS, ownerReferences=owned_by("Job", "batch/v1")), dry_run=True
    )
