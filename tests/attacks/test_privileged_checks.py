"""The Jobs of a pool's checks run on every node: none of them gets at the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import JOBS, PODS
from provisioner.cluster.source import Index
from provisioner.health.decision import JobOrder
from provisioner.health.job_runner import JobRunner, labelled_server
from tests.health.objects import job_check
from tests.people import until

CHECKS = "provisioner-checks"
ASKS: dict[str, dict[str, Any]] = {
    "hostNetwork": {"hostNetwork": True},
    "hostPID": {"hostPID": True},
    "hostIPC": {"hostIPC": True},
    "hostPath of volume root": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
    "hostPort in container check": {
        "containers": [{"name": "check", "image": "busybox", "ports": [{"containerPort": 80, "hostPort": 10250}]}]
    },
    "seccompProfile Unconfined": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    "capabilities in container check": {
        "containers": [
            {"name": "check", "image": "busybox", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}
        ]
    },
    "seccompProfile Unconfined in container check": {
        "containers": [
            {"name": "check", "image": "busybox", "securityContext": {"seccompProfile": {"type": "Unconfined"}}}
        ]
    },
    "appArmorProfile Unconfined": {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}},
    "appArmorProfile Unconfined in container check": {
        "containers": [
            {"name": "check", "image": "busybox", "securityContext": {"appArmorProfile": {"type": "Unconfined"}}}
        ]
    },
    "hostPort in container first": {
        "initContainers": [{"name": "first", "image": "busybox", "ports": [{"containerPort": 80, "hostPort": 10250}]}]
    },
    "privileged": {  # where the API server does not forbid it to everybody
        "containers": [{"name": "check", "image": "busybox", "securityContext": {"privileged": True}}]
    },
}


def pod_spec(**more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "check", "image": "busybox"}], "restartPolicy": "Never", **more}


@pytest.fixture
def start(account: Callable[[str], Cluster], cluster: Cluster) -> Iterator[Callable[[str, dict[str, Any]], str]]:
    """Starts a check with such a pod on a server, with the rights of its account; what came of it, in words."""
    jobs, pods = Index(labelled_server), Index(labelled_server)
    runner = JobRunner(account("health"), jobs=jobs, pods=pods, is_of_checks=lambda namespace: True)

    def begin(server: str, spec: dict[str, Any]) -> str:
        check = job_check(template={"spec": {"template": {"spec": spec}}})
        order = JobOrder(check=check, boot_id="boot", attempt=1)
        if runner.start(order, server):
            return "started"
        return runner.state(check, server, "boot", 1).message

    yield begin
    for job in cluster.list(JOBS, namespace=CHECKS).items:
        cluster.delete(JOBS, job["metadata"]["name"], namespace=CHECKS)


@pytest.mark.parametrize("too_much", ASKS)
def test_a_check_that_asks_for_the_host_is_refused_with_words(
    start: Callable[[str, dict[str, Any]], str], cluster: Cluster, unique: str, too_much: str
) -> None:
    said = start(unique, pod_spec(**ASKS[too_much]))
    assert too_much in said
    assert "disallowed by cluster policy" in said or "give the check a namespace of its own" in said
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": unique, "namespace": CHECKS}}
    with pytest.raises(Refused, match=r'violates PodSecurity "baseline|disallowed by cluster policy'):
        cluster.create(PODS, pod | {"spec": pod_spec(**ASKS[too_much])})


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        ({"priorityClassName": "system-node-critical"}, "priorityClassName system-"),
        ({"terminationGracePeriodSeconds": 301}, "terminationGracePeriodSeconds"),
    ],
)
def test_a_check_that_would_end_pods_or_outstay_its_end_is_refused_with_words(
    start: Callable[[str, dict[str, Any]], str], unique: str, asks: dict[str, Any], words: str
) -> None:
    assert words in start(unique, pod_spec(**asks))


def test_a_check_that_needs_a_while_to_end_and_has_a_priority_of_the_site_is_started(
    start: Callable[[str, dict[str, Any]], str], unique: str
) -> None:
    harmless = {
        "securityContext": {"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
        "ports": [{"containerPort": 80}],
    }
    spec = pod_spec(
        containers=[{"name": "check", "image": "busybox", **harmless}],
        securityContext={"seccompProfile": {"type": "RuntimeDefault"}},
        terminationGracePeriodSeconds=300,
        priorityClassName="checks",
    )
    assert start(unique, spec) == "started"


def test_an_ordinary_check_is_started_and_its_pod_made(
    start: Callable[[str, dict[str, Any]], str], cluster: Cluster, unique: str
) -> None:
    assert start(unique, pod_spec()) == "started"
    label = f"provisioner.dev/server={unique}"
    until(lambda: bool(cluster.list(PODS, namespace=CHECKS, label_selector=label).items))
