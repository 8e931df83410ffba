"""What Prometheus would read of a registry."""

from __future__ import annotations

import subprocess

from prometheus_client import CollectorRegistry, generate_latest

from tests.tools import installed


def samples(registry: CollectorRegistry) -> dict[str, float]:
    """Each series, as it is written, and its value."""
    lines = generate_latest(registry).decode().splitlines()
    found = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in found if "_created" not in name}


def risen(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """By how much each series rose that did, those of times and sizes left out."""
    left_out = ("_seconds", "process_", "_timestamp", "_free_bytes", "_bucket", "api_request")
    return {
        name: value - before.get(name, 0.0)
        for name, value in after.items()
        if value > before.get(name, 0.0) and not any(word in name for word in left_out)
    }


def check_by_promtool(registry: CollectorRegistry) -> None:
    """promtool has nothing to say of it."""
    command = [installed("promtool"), "check", "metrics"]
    text = "".join(line + "\n" for line in generate_latest(registry).decode().splitlines() if "_created" not in line)
    said = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=120)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")
