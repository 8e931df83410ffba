"""Real runs of ansible-playbook with the collection as ansible-galaxy installed it, and what came of each task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "ansible"
PROGRAMS = Path(sys.executable).parent


@dataclass(frozen=True)
class Told:
    """One result."""

    host: str
    task: str
    state: str
    result: Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """All results of a run, in order; handlers are tasks, too."""

    code: int
    told: tuple[Told, ...]
    output: str

    def __getitem__(self, task: str) -> Told:
        return next(each for each in self.told if each.task == task)

    @property
    def changed(self) -> list[str]:
        return [each.task for each in self.told if each.state == "changed"]

    @property
    def failed(self) -> list[Told]:
        return [each for each in self.told if each.state in ("failed", "unreachable")]


@dataclass(frozen=True)
class Installed:
    """The collection in a folder of its own; `home` is where Ansible writes."""

    collections: Path
    home: Path

    def environment(self, **more: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")}
        return kept | {
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            "ANSIBLE_HOME": str(self.home),
            "ANSIBLE_CONFIG": str(Path(__file__).parent / "ansible.cfg"),
            "ANSIBLE_CALLBACK_PLUGINS": str(Path(__file__).parent / "callback"),
            "ANSIBLE_STDOUT_CALLBACK": "told",
            "ANSIBLE_LOCALHOST_WARNING": "False",
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
            "ANSIBLE_GALAXY_SERVER_LIST": "",
            "LC_ALL": "C.UTF-8",
            "NO_COLOR": "1",
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            **more,
        }

    def command(self, *words: str | Path, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
        """One of Ansible's programs."""
        program, *rest = (str(word) for word in words)
        return subprocess.run(
            [PROGRAMS / program, *rest],
            capture_output=True,
            text=True,
            env=self.environment(**more),
            cwd=cwd,
            check=False,
            timeout=600,
        )

    def play(self, playbook: Path | str, *words: str | Path, **more: str) -> Run:
        """ansible-playbook, of a file or `namespace.name.playbook`."""
        ran = self.command("ansible-playbook", *words, playbook, **more)
        told = [Told(**json.loads(line)) for line in ran.stdout.splitlines() if line.startswith('{"host"')]
        return Run(ran.returncode, tuple(told), ran.stdout + ran.stderr)

    def tasks(self, folder: Path, tasks: list[dict[str, Any]], *words: str | Path, **variables: Any) -> Run:
        """These tasks on the controller host itself."""
        play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "vars": variables, "tasks": tasks}
        file = folder / "play.yml"
        file.write_text(yaml.safe_dump([play], sort_keys=False))
        return self.play(file, *words)
