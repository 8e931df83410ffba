"""What a DPU's kernel has of tenants, by its own agent's `show`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from provisioner.api.errors import NeedsHuman
from provisioner.lab.virtual_network.rack import DPU

_HOME: Final = "."
_OF_PORTS: Final = ("links", "sysctls")
"""Ports are there whether or not anything is attached."""


def show(dpu: DPU) -> dict[str, dict[str, list[Any]]]:
    """What the agent's `show` prints: of each place, lists by kind. Raises: NeedsHuman."""
    ran = subprocess.run(dpu.agent_command("show"), capture_output=True, text=True, timeout=60, check=False)
    if ran.returncode != 0:
        raise NeedsHuman(f"`show` of {dpu.name} ended with {ran.returncode}: {ran.stderr.strip()}", hint="see its log")
    shown: dict[str, dict[str, list[Any]]] = json.loads(ran.stdout)
    return shown


def residue(shown: Mapping[str, Mapping[str, list[Any]]]) -> list[str]:
    """What is of tenants in it, as "place: kind"; empty if the DPU is as if there had never been one.

    Ports themselves are none, nor their settings, nor the mark and the rules by which what has no attachment is shut.
    """
    found = []
    for place, kinds in sorted(shown.items()):
        for kind, entries in sorted(kinds.items()):
            ours = [each for each in entries if not _is_a_port(kind, each)] if place == _HOME else entries
            if ours:
                found.append(f"{place}: {kind}")
    return found


def _is_a_port(kind: str, entry: Any) -> bool:
    return kind == "sysctls" or (kind == "links" and isinstance(entry, dict) and entry.get("kind") == "port")
