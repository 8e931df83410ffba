"""The command line: what it lists, and how it fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from provisioner.cli.main import COMMANDS, provisioner
from provisioner.cli.service.manifests import all_manifests


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "provisioner.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(command: str) -> None:
    said = CliRunner().invoke(provisioner, [command, "--help"])
    assert said.exit_code == 0, said.output
    assert "Usage:" in said.output


def test_help_lists_every_command() -> None:
    said = CliRunner().invoke(provisioner, ["--help"])
    for command in COMMANDS:
        assert f"  {command}" in said.output


@pytest.mark.programs
def test_help_does_not_load_flask_or_kubernetes() -> None:
    probe = "import sys, provisioner.cli.main; print(sorted({'flask', 'kubernetes', 'sushy'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


@pytest.mark.programs
def test_an_error_names_its_remedy_and_shows_no_traceback(tmp_path: Path) -> None:
    said = run("accept", "r01-u01", "--kubeconfig", str(tmp_path / "none"))
    assert said.returncode == 1
    assert "error: no access to the cluster" in said.stderr
    assert "try: " in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.programs
def test_kubectl_finds_its_plugin_under_the_same_words() -> None:
    said = run("kubectl", "accept", "--help")
    assert said.returncode == 0
    assert "SERVER" in said.stdout


@pytest.mark.programs
def test_manifests_come_in_an_order_that_can_be_applied() -> None:
    kinds = [manifest["kind"] for manifest in all_manifests()]
    assert kinds.index("Namespace") < kinds.index("ServiceAccount") < kinds.index("RoleBinding")
    assert max(i for i, kind in enumerate(kinds) if kind == "CustomResourceDefinition") < kinds.index("Namespace")
    assert list(yaml.safe_load_all(run("manifests").stdout)) == all_manifests()


@pytest.mark.programs
def test_the_flags_of_a_control_plane_can_be_copied() -> None:
    said = run("control-plane-flags").stdout
    for flag in ("--enable-bootstrap-token-auth=true", "--cluster-signing-duration=24h", "--audit-policy-file"):
        assert flag in said
