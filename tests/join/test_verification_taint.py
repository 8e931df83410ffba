"""The taint that keeps a booted Node out of use, as the real scheduler and the real taint eviction see it.

The test plays the kubelet: what is looked at is which pods get to the Node and which stay there.
Source: Kubernetes, "Taints and Tolerations".
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.binaries.obtain import Binaries
from provisioner.api.machinery.meta import rfc3339
from provisioner.cluster.resources import NODES, PODS
from tests.join.test_controllers import wait_until
from tests.join.world import World
from tests.tools import missing

TOLERATION = {"key": "provisioner.dev/verification", "operator": "Exists"}
POOLS_TAINT = {"key": "gpu.example/reserved", "operator": "Exists"}


@pytest.fixture
def scheduler(binaries: Binaries, world: World, tmp_path: Path) -> Iterator[None]:
    """A scheduler for the pods of this test alone."""
    if binaries.kube_scheduler is None:
        missing("a kube-scheduler beside the control plane's programs")
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(world.plane.kubeconfig)},
        "profiles": [{"schedulerName": world.name}],
    }
    path = tmp_path / "scheduler.yaml"
    path.write_text(yaml.safe_dump(configuration))
    with (tmp_path / "scheduler.log").open("w") as log:
        command = [str(binaries.kube_scheduler), f"--config={path}", "--secure-port=0"]
        running = subprocess.Popen(command, stdout=log, stderr=log)
        yield
        running.kill()
        running.wait(60)


def become_ready(world: World) -> None:
    """As a kubelet does, as often as it takes until the node controller has seen it."""
    now = rfc3339(world.clock())
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "test",
             "lastTransitionTime": now, "lastHeartbeatTime": now}  # fmt: skip
    room = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    body = {"status": {"conditions": [ready], "capacity": room, "allocatable": room}}
    world.admin.patch(NODES, world.name, body, subresource="status")
    world.renew_lease(world.clock())


def run_pod(world: World, name: str, *tolerations: dict[str, Any], bound: bool = False) -> None:
    spec: dict[str, Any] = {
        "schedulerName": world.name,
        "nodeSelector": {"kubernetes.io/hostname": world.name},
        "tolerations": [POOLS_TAINT, *tolerations],
        "containers": [{"name": "c", "image": "example.com/none"}],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
    }
    if bound:
        spec["nodeName"] = world.name
    metadata = {"name": f"{world.name}-{name}", "namespace": "default"}
    world.admin.create(
        PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, namespace="default"
    )


def pods(world: World) -> dict[str, dict[str, Any]]:
    listed = world.admin.list(PODS, namespace="default").items
    prefix = f"{world.name}-"
    return {
        pod["metadata"]["name"].removeprefix(prefix): pod
        for pod in listed
        if pod["metadata"]["name"].startswith(prefix) and not pod["metadata"].get("deletionTimestamp")
    }


def is_open(world: World) -> bool:
    """Whether nothing but the verification and the pool keeps pods off the Node."""
    become_ready(world)
    keys = {taint["key"] for taint in world.admin.get(NODES, world.name)["spec"].get("taints") or []}
    return keys <= {"provisioner.dev/verification", "gpu.example/reserved"}


def why_it_waits(world: World, name: str) -> str:
    conditions = (pods(world)[name].get("status") or {}).get("conditions") or []
    return next((str(c.get("message")) for c in conditions if c["type"] == "PodScheduled"), "")


@pytest.fixture
def booted(world: World) -> Iterator[World]:
    wait_until(lambda: is_open(world), "the node controller calls the Node ready")
    yield world
    for name in pods(world):
        world.admin.delete(PODS, f"{world.name}-{name}", namespace="default")
    world.admin.delete(NODES, world.name)


@pytest.mark.usefixtures("scheduler")
def test_a_pod_that_tolerates_it_gets_to_a_booted_node_and_another_waits_until_it_is_taken_off(booted: World) -> None:
    run_pod(booted, "job")
    run_pod(booted, "check", TOLERATION)
    wait_until(lambda: pods(booted)["check"]["spec"].get("nodeName") == booted.name, "the check gets to the Node")
    wait_until(lambda: "untolerated taint" in why_it_waits(booted, "job"), "the job waits for the taint")
    assert "nodeName" not in pods(booted)["job"]["spec"]
    kept = [t for t in booted.admin.get(NODES, booted.name)["spec"]["taints"] if t["key"] == "gpu.example/reserved"]
    booted.admin.patch(NODES, booted.name, {"spec": {"taints": kept}})
    wait_until(lambda: pods(booted)["job"]["spec"].get("nodeName") == booted.name, "the job gets to the Node")


def test_preparing_the_next_boot_evicts_from_the_old_one_what_does_not_tolerate_it(booted: World) -> None:
    """By then the executor has drained it: what is left is what nobody may wait for."""
    booted.admin.patch(NODES, booted.name, {"spec": {"taints": None}})
    run_pod(booted, "left-over", bound=True)
    run_pod(booted, "agent", TOLERATION, bound=True)
    booted.order("order-2", reason="Requested", method="Kexec")
    wait_until(lambda: set(pods(booted)) == {"agent"}, "what does not tolerate it is evicted")
