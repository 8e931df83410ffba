"""A benchmark that needs servers that boot: a lab is brought up for it, and it runs a second time inside of that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from lab.cli.parts import demo_state
from lab.network import LabNetwork
from tests.journey.virtual_rack import lab_command

BOOT_SECONDS: Final = 900


def run_in_lab(name: str, up: Sequence[str], module: str, arguments: Sequence[str]) -> None:
    """Bring up the lab `name` by `up`, run `module` with `arguments` in its network namespace, and take the lab down,
    whatever becomes of it.

    Raises: CalledProcessError if the lab or the module fails.
    """
    try:
        subprocess.run(lab_command("up", "--name", name, *up, f"--timeout={BOOT_SECONDS}"), check=True)
        inside = [sys.executable, "-m", f"tests.benchmarks.{module}", *arguments]
        subprocess.run(LabNetwork(name).command(inside), check=True)
    finally:
        subprocess.run(lab_command("down", "--name", name), check=False)


def accelerator_of(name: str) -> str:
    """By what the lab's machines run, or ran last: kvm or tcg."""
    return (demo_state(name).cache / "labs" / f".{name}-accelerator").read_text()
