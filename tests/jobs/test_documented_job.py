"""The Job of docs/jobs.md: accepted by the API server, told by its annotation, and its script checkpoints."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import POD_WARNING_ANNOTATION
from provisioner.api.pools.node_pool import NodePool
from provisioner.cluster.resources import JOBS, PODS
from tests.jobs.kubernetes_site import Site
from tests.jobs.pod_samples import pool

pytestmark = pytest.mark.programs

DOCUMENT = Path(__file__).parents[2] / "docs/jobs.md"


def documented(kind: str) -> dict[str, Any]:
    """The manifest of `kind` in the document."""
    blocks = DOCUMENT.read_text().split("```yaml\n")[1:]
    found = (yaml.safe_load(block.split("```")[0]) for block in blocks)
    return next(body for body in found if body["kind"] == kind)


def wait_for(happened: Callable[[], Any], seconds: float = 180) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := happened()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_the_job_is_made_seen_and_told_in_the_file_that_it_mounts(site: Site) -> None:
    site.cluster.apply(documented("Job") | {"metadata": {"name": "train", "namespace": site.namespace}}, manager="test")
    (pod,) = wait_for(lambda: site.cluster.list(PODS, namespace=site.namespace).items)
    name = pod["metadata"]["name"]
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": site.node},
    }
    site.cluster._request("POST", PODS.item(name, site.namespace, "binding"), what="BIND", body=binding)
    (job,) = site.workloads.look(site.server, pool()).jobs
    assert job.message == f"pod {site.namespace}/{name} of Job train is starting"
    deadline = site.now + timedelta(hours=1)
    assert site.workloads.warn(site.server, pool(), deadline, "image gpu-2") == 1
    told = site.read(name)
    assert told["metadata"]["annotations"][POD_WARNING_ANNOTATION] == rfc3339(deadline)
    (volume,) = (volume for volume in told["spec"]["volumes"] if "downwardAPI" in volume)
    (item,) = volume["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{POD_WARNING_ANNOTATION}']"
    (container,) = told["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment["DEADLINE"] == f"{mounts[volume['name']]}/{item['path']}"
    site.workloads.evict(site.server, pool(), spare=(), force=False)
    site.cluster.delete(JOBS, "train", namespace=site.namespace)


@pytest.fixture
def training(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The documented script, running as a process of this machine."""
    (container,) = documented("Job")["spec"]["template"]["spec"]["containers"]
    given = {"STEPS": "100000", "CHECKPOINT": str(tmp_path / "step"), "DEADLINE": str(tmp_path / "deadline")}
    command = [*container["command"], *container["args"]]
    process = subprocess.Popen(command, env={**os.environ, **given}, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


def test_its_script_checkpoints_when_the_file_is_filled_and_on_sigterm(
    training: subprocess.Popen[str], tmp_path: Path
) -> None:
    (tmp_path / "deadline").write_text("")
    time.sleep(0.5)
    assert not (tmp_path / "step").exists()
    (tmp_path / "deadline").write_text("2026-01-01T00:00:00Z")
    first = int(wait_for(lambda: (tmp_path / "step").exists() and (tmp_path / "step").read_text()))
    time.sleep(0.5)
    assert int((tmp_path / "step").read_text()) == first
    training.send_signal(signal.SIGTERM)
    assert training.wait(180) == 143
    assert int((tmp_path / "step").read_text()) > first


def test_the_documented_pool_is_a_pool() -> None:
    decoded = decode(NodePool, documented("NodePool"))
    assert decoded.spec.jobs.slurm is not None
    assert decoded.spec.jobs.slurm.signal == "USR1"
