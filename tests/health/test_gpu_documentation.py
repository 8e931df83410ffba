"""docs/gpus.md: its pools are applied as they stand, and its Job with DCGM is run, with a fake `dcgmi` beside it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from provisioner.api import NodePool
from provisioner.api.machinery.codec import decode
from provisioner.api.nodes.contract import HOLD_TAINT, MAINTENANCE_TAINT, VERIFICATION_TAINT
from provisioner.health.jobs.manifest import render_job
from provisioner.health.jobs.outcome import JobState, read_job
from provisioner.join.nodes.node_object import POOL_LABEL
from tests.health.objects import BOOT

if TYPE_CHECKING:
    from lab.binaries.obtain import Binaries
    from lab.control_plane.plane import ControlPlane
    from provisioner.cluster.client import Cluster

pytestmark = pytest.mark.programs

TEXT = (Path(__file__).parents[2] / "docs" / "gpus.md").read_text()
POOLS = [
    each
    for each in (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL))
    if each["kind"] == "NodePool"
]
HEAD = """\
Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 3.3.9                                          |
|-----  Deployment  --------+------------------------------------------------|
| NVML Library              | Pass                                           |
"""
PASSED = HEAD + "| GPU Memory                | Pass - All                                     |\n"
FAILED = HEAD + '| GPU Memory                | Fail - GPU: 3 "hot" \\                          |\n'
PASS = JobState(phase="Passed", reason="Completed", message="completed")


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: "with " + " and ".join(pool["spec"]["verification"]))
def test_a_pool_of_the_document_is_accepted_by_the_api_server(
    pool: dict[str, Any], cluster: Cluster, unique: str
) -> None:
    from provisioner.cluster.resources import of

    body = pool | {"metadata": {"name": f"{unique}-gpus"}}
    accepted = decode(NodePool, cluster.apply(body, manager="tests", dry_run=True))
    assert accepted.spec.verification.expected.gpus is not None
    settings = accepted.spec.verification.gpus
    if settings is not None:
        assert (settings.fabric, settings.ecc, settings.slowdowns, settings.max_uncorrected_errors) == (
            "Required", "Enabled", "Fail", 0,
        )  # fmt: skip
    assert of(NodePool).plural == "nodepools"


class FakeDcgm:
    """A folder of programs that are named as DCGM's and print what they are told to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = folder / "termination-log"
        self.answer("nv-hostengine", "", 0)

    def answer(self, program: str, text: str, status: int) -> None:
        said = self.folder / f"{program}.txt"
        said.write_text(text)
        path = self.folder / program
        path.write_text(f'#!/bin/sh\necho "$0 $*" >>{self.folder}/calls\ncat {said}\nexit {status}\n')
        path.chmod(0o755)

    def run(self) -> JobState:
        """The container's command, and what the controller makes of its end."""
        (pool,) = (each for each in POOLS if each["spec"]["verification"].get("checks"))
        (check,) = decode(NodePool, pool).spec.verification.checks
        job = render_job(check, "r01-u01", BOOT, 1)
        (container,) = job["spec"]["template"]["spec"]["containers"]
        environment = {each["name"]: each["value"] for each in container["env"]}
        done = subprocess.run(
            container["command"],
            env={**environment, "PATH": f"{self.folder}:{os.environ['PATH']}", "TOLD": str(self.told)},
            capture_output=True,
            timeout=60,
            check=False,
        )
        ended = {"exitCode": done.returncode, "message": self.told.read_text() if self.told.exists() else ""}
        type_ = "Complete" if done.returncode == 0 else "Failed"
        ending = {"status": {"conditions": [{"type": type_, "status": "True"}]}}
        pod = {"status": {"containerStatuses": [{"name": "check", "state": {"terminated": ended}}]}}
        return read_job(ending, [pod])


@pytest.fixture
def dcgm(tmp_path: Path) -> FakeDcgm:
    return FakeDcgm(tmp_path)


def test_the_job_passes_when_the_diagnostic_does_and_asks_for_the_level_of_its_pool(dcgm: FakeDcgm) -> None:
    dcgm.answer("dcgmi", PASSED, 0)
    assert dcgm.run() == PASS
    assert "/dcgmi diag -r 2\n" in (dcgm.folder / "calls").read_text()


@pytest.mark.parametrize("status", [0, 226])
def test_what_failed_is_named_whatever_the_exit_code(dcgm: FakeDcgm, status: int) -> None:
    dcgm.answer("dcgmi", FAILED, status)
    state = dcgm.run()
    assert (state.phase, state.reason) == ("Failed", "DiagnosticFailed")
    assert "dcgmi diag -r 2: GPU Memory: Fail - GPU: 3 hot" in state.message
    assert "replace the GPU" in state.message


@pytest.mark.parametrize(
    ("answers", "reason", "words"),
    [
        ({"dcgmi": ("Error: unable to establish a connection\n", 255)}, "DiagnosticNotRun", "unable to establish"),
        ({"dcgmi": (HEAD.replace("Pass", "Skip"), 0)}, "DiagnosticNotRun", "tested nothing"),
        ({"nv-hostengine": ("no permission\n", 1), "dcgmi": (PASSED, 0)}, "NoHostEngine", "no permission"),
    ],
)
def test_a_diagnostic_that_did_not_run_is_no_pass(
    dcgm: FakeDcgm, answers: dict[str, tuple[str, int]], reason: str, words: str
) -> None:
    for program, (text, status) in answers.items():
        dcgm.answer(program, text, status)
    state = dcgm.run()
    assert (state.phase, state.reason) == ("Failed", reason)
    assert words in state.message


@pytest.mark.parametrize("name", ["dcgm-exporter", "node-exporter-gpus"])
def test_a_manifest_beside_the_document_is_accepted_whole_by_the_api_server(
    name: str, control_plane: ControlPlane, binaries: Binaries
) -> None:
    path = Path(__file__).parents[2] / "docs" / "manifests" / f"{name}.yaml"

    def kubectl(*arguments: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(binaries.kubectl), f"--kubeconfig={control_plane.kubeconfig}", *arguments]
        return subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, check=False)

    namespace, *others = yaml.safe_load_all(path.read_text())
    kubectl("apply", "-f", "-", given=yaml.safe_dump(namespace))  # where the others are tried
    said = kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(path))
    assert said.returncode == 0, said.stderr
    assert "arning" not in said.stderr, "PodSecurity has something to say"
    assert len(said.stdout.splitlines()) == 1 + len(others)


def test_manifests_select_and_tolerate_by_names_that_the_provisioner_uses() -> None:
    taints = {VERIFICATION_TAINT, MAINTENANCE_TAINT, HOLD_TAINT}
    text = (Path(__file__).parents[2] / "docs" / "manifests" / "dcgm-exporter.yaml").read_text()
    _, daemon_set, _ = yaml.safe_load_all(text)
    spec = daemon_set["spec"]["template"]["spec"]
    assert set(spec["nodeSelector"]) == {POOL_LABEL}
    tolerated = {each["key"] for each in spec["tolerations"] if each["key"].startswith("provisioner.dev/")}
    assert tolerated == taints - {VERIFICATION_TAINT}


def test_every_metric_and_every_alert_is_told_of() -> None:
    root = Path(__file__).parents[2]
    golden = (root / "tests" / "golden" / "node" / "gpus.prom").read_text()
    metrics = re.findall(r"^# TYPE provisioner_gpu(\w+) ", golden, re.MULTILINE)
    alerts = re.findall(r"alert: (\w+)", (root / "docs" / "prometheus-alerts-gpus.yaml").read_text())
    assert (len(metrics), len(alerts)) == (33, 10)
    assert [each for each in metrics if f"`{each}`" not in TEXT and f"`provisioner_gpu{each}`" not in TEXT] == []
    assert [each for each in alerts if f"`{each}`" not in TEXT] == []
