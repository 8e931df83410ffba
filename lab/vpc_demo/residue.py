"""What a DPU's kernel has of tenants, by its own agent's `show`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any, Final

from lab.virtual_network.rack import DPU
from provisioner.api.machinery.errors import NeedsHuman

Shown = Mapping[str, Mapping[str, list[Any]]]
"""Of each place, lists by kind."""
_HOME: Final = "."


def show(dpu: DPU) -> Shown:
    """What the agent's `show` prints. Raises: NeedsHuman."""
    ran = subprocess.run(dpu.agent_command("show"), capture_output=True, text=True, timeout=60, check=False)
    if ran.returncode != 0:
        raise NeedsHuman(f"`show` of {dpu.name} ended with {ran.returncode}: {ran.stderr.strip()}", hint="see its log")
    shown: Shown = json.loads(ran.stdout)
    return shown


def differing(one: Shown, other: Shown) -> list[str]:
    """Where two prints of `show` differ, but for the ports themselves, as "place: kind"."""
    mine, its = _without_ports(one), _without_ports(other)
    return [
        f"{place}: {kind}"
        for place in sorted({*mine, *its})
        for kind in sorted({*mine.get(place, {}), *its.get(place, {})})
        if mine.get(place, {}).get(kind) != its.get(place, {}).get(kind)
    ]


def residue(shown: Shown) -> list[str]:
    """What is of ours in it, as "place: kind"; empty if the DPU is as if no agent had ever enforced anything."""
    places = _without_ports(shown)
    return [f"{place}: {kind}" for place, kinds in sorted(places.items()) for kind in sorted(kinds) if kinds[kind]]


def _without_ports(shown: Shown) -> Shown:
    """Ports, and their settings, are there without us; they keep the MTU and the MAC address that they had last."""
    return {
        place: {
            kind: [each for each in entries if place != _HOME or not _is_of_a_port(kind, each)]
            for kind, entries in kinds.items()
        }
        for place, kinds in shown.items()
    }


def _is_of_a_port(kind: str, entry: Any) -> bool:
    return kind == "sysctls" or (kind == "links" and entry.get("kind") == "port")
