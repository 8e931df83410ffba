"""The annotation provisioner.dev/node-facts: what this machine is, and how it is now."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from provisioner.node.machine.boot_facts import BootFacts
from provisioner.node.machine.gpus.facts import without_counts
from provisioner.node.machine.hardware import hardware_facts
from provisioner.node.machine.running import running_facts

FORMAT = 1
MAX_BYTES = 16384
REPEAT_SECONDS = 300.0
"""How often facts that only drift (free space) are written again; others are as soon as they change."""
SETTLING_SECONDS, SETTLED_SECONDS = 10.0, 30.0
"""How often it is looked whether something changed: while clock, kubelet or runtime are not good yet, and later."""
_DRIFTING = ("time", "rootFreeBytes")
_SHORTENED = ("nics", "disks", "infinibandPorts", "pci", "gpuXids", "faults")
_SHORTENED_LAST = "gpus"


def node_facts(
    boot: BootFacts,
    root: str,
    now: float,
    gpus: Mapping[str, Any] | None = None,
    faults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """All facts, as `provisioner.api.machinery.codec.to_json` would write a NodeFacts. gpus: those of `gpus.facts`.
    faults: those of `faults.MachineFaults`."""
    facts = {
        "format": FORMAT,
        "bootID": boot.boot_id,
        "imageDigest": boot.image_digest,
        "time": rfc3339(now),
        **hardware_facts(root),
        **running_facts(root),
        **(gpus or {}),
        **(faults or {}),
    }
    return {key: value for key, value in facts.items() if value is not None and value != []}


def render(facts: Mapping[str, Any]) -> str:
    """The annotation's text, at most MAX_BYTES: long lists lose their ends, the longest first."""
    facts = dict(facts)
    while len(text := json.dumps(facts, separators=(",", ":"))) > MAX_BYTES:
        longest = max(_SHORTENED, key=lambda key: len(facts.get(key, ())))
        if not facts.get(longest):
            longest = _SHORTENED_LAST
        facts[longest] = facts[longest][:-1]
        if longest == "faults":
            facts["faultsLeftOut"] = True
    return text


def pause_seconds(written: Mapping[str, Any] | None) -> float:
    """How long to wait before looking again, after `written` were found. Pure."""
    if written is None or written.get("gpuDriver", {}).get("state") == "Looking":
        return 0.0
    good = all(written.get(key) for key in ("clockSynchronized", "kubeletActive", "runtimeActive"))
    return SETTLED_SECONDS if good else SETTLING_SECONDS


def is_news(facts: Mapping[str, Any], written: Mapping[str, Any] | None, age_seconds: float) -> bool:
    """Whether `facts` should be written, `age_seconds` after `written` were. Pure."""
    if written is None or age_seconds >= REPEAT_SECONDS:
        return True
    return _lasting(facts) != _lasting(written)


def _lasting(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in without_counts(facts).items() if key not in _DRIFTING}


def rfc3339(now: float) -> str:
    """Seconds since 1970 as `2026-01-01T00:00:00.000000Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
