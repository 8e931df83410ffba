"""Helm, run for real."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from charts.write import HERE
from lab.binaries.helm import entry_of
from provisioner.cluster.resources import SYSTEM
from tests.tools import CACHE, missing

MINIMAL = HERE / "ci" / "minimal-values.yaml"
MANIFESTS_ONLY = HERE / "ci" / "manifests-only-values.yaml"

ATTEMPTS = 5
UNREACHABLE = "kubernetes cluster unreachable"
"""What Helm says before it has done anything, where a TLS handshake took longer than its 10 s."""


class HelmRefused(Exception):
    """With what it said."""


@dataclass(frozen=True)
class Helm:
    """The program; `kubeconfig`: of the cluster that it installs into, if any."""

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str | Path) -> str:
        """What it prints to stdout. Raises: HelmRefused."""
        home = {"HOME": str(self.home), "HELM_DRIVER": "secret", "KUBECONFIG": str(self.kubeconfig or "/dev/null")}
        command = [str(self.program), *(str(each) for each in arguments)]
        for _ in range(ATTEMPTS):
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env=os.environ | home, timeout=300
            )
            if not done.returncode:
                return done.stdout
            if UNREACHABLE not in done.stderr.lower():
                break
        raise HelmRefused(done.stderr)

    def template(self, *arguments: str | Path, namespace: str = SYSTEM, chart: Path = HERE) -> list[dict[str, Any]]:
        """What it would install, in the order in which it would."""
        printed = self.run("template", "provisioner", chart, "--namespace", namespace, *arguments)
        return [body for body in yaml.safe_load_all(printed) if body]

    def act(self, verb: str, *arguments: str | Path, chart: Path | None = HERE) -> str:
        """install, upgrade and the like, of the release `provisioner`."""
        charts = [chart] if chart is not None else []
        return self.run(verb, "provisioner", *charts, "--namespace", SYSTEM, *arguments)


def find_helm(home: Path, kubeconfig: Path | None = None) -> Helm:
    """As tests/prepare.py has built it."""
    program = entry_of(CACHE) / "helm"
    if not program.exists():
        missing("helm")
    return Helm(program, home, kubeconfig)


def key(body: dict[str, Any]) -> tuple[str, str, str, str]:
    """What names an object."""
    metadata = body["metadata"]
    return body["apiVersion"], body["kind"], metadata.get("namespace", ""), metadata["name"]
