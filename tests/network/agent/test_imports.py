"""The agent is put into the DPU's image with the API's kinds, Python and pyroute2, and starts with nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pyroute2
import pytest

import provisioner
from provisioner.network import agent

pytestmark = pytest.mark.programs

ROOT = Path(provisioner.__file__).parent.parent
ALLOWED = ("provisioner.api", "provisioner.network.agent", "provisioner.network.evpn", "provisioner.node", "pyroute2")


def test_the_agent_imports_python_pyroute2_and_the_apis_kinds_and_nothing_else() -> None:
    strangers = set()
    for path in Path(agent.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "."]
            strangers |= {
                f"{path.name}: {name}"
                for name in names
                if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith(ALLOWED)
            }
    assert strangers == set()


def test_it_starts_where_no_other_package_is_installed(tmp_path: Path) -> None:
    (tmp_path / "pyroute2").symlink_to(Path(pyroute2.__file__).parent)
    ran = subprocess.run(
        [sys.executable, "-S", "-m", "provisioner.network.agent", "--help"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"},
    )
    assert ran.returncode == 0, ran.stderr
    assert "once" in ran.stdout
