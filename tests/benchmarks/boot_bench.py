"""The boot of a demo server by phase, and its ratio to the floor measured in the same run.

`python -m tests.benchmarks.boot_bench` as root. A lab with one server of the given firmware is brought up; then the
server and the floor (see boot_floor) are booted in turns, one machine at a time. Times are from power-on to the
Node's Ready.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from provisioner.api import Server
from provisioner.api.boot_timeline import PHASE_NAMES, boot_timeline
from provisioner.api.conditions import is_true
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import NODES
from provisioner.lab.demo.state import DemoState
from provisioner.lab.network import LabNetwork
from provisioner.lab.tools import obtain_tools
from tests.benchmarks.boot_floor import NODE, Floor

LAB: Final = "bench"
SERVER: Final = "r01-u01"
BOOT_SECONDS: Final = 900


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--firmware", default="UEFI", choices=["UEFI", "BIOS"])
    parser.add_argument("--memory", type=int, default=1024, help="MiB of the machine")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args(arguments)
    cache = Path(os.environ.get("PROVISIONER_CACHE", Path.home() / ".cache/provisioner"))
    state = DemoState(cache=cache, name=LAB)
    if options.inside:
        measure(state, options)
        return 0
    lab = [sys.executable, "-m", "provisioner.cli", "lab"]
    up = ["--servers", options.firmware, "--memory", str(options.memory), "--timeout", str(BOOT_SECONDS)]
    try:
        subprocess.run([*lab, "up", "--name", LAB, *up], check=True)
        inside = [sys.executable, "-m", "tests.benchmarks.boot_bench", "--inside", *(arguments or sys.argv[1:])]
        return subprocess.run(LabNetwork(LAB).command(inside), check=False).returncode
    finally:
        subprocess.run([*lab, "down", "--name", LAB], check=False)


def measure(state: DemoState, options: argparse.Namespace) -> None:
    """Boot in turns; runs inside the lab's network namespace."""
    cluster = Cluster.connect(state.kubeconfig)
    accelerator = (state.cache / "labs" / f".{state.name}-accelerator").read_text()
    folder = Path(state.image_record("gpu").read_text())
    floor = Floor(state, obtain_tools(state.cache), folder, options.memory, accelerator)
    floor.prepare()
    ours: list[dict[str, float]] = []
    floors: list[float] = []
    _power(cluster, "Off")
    for repetition in range(options.repetitions):
        floors.append(_boot_floor(cluster, floor))
        ours.append(_boot_ours(cluster))
        print(
            f"{repetition + 1}: ours {ours[-1]['total']:.1f} s, floor {floors[-1]:.1f} s", file=sys.stderr, flush=True
        )
    write_table(ours, floors, floor.root_bytes(), options, accelerator)


def _boot_ours(cluster: Cluster) -> dict[str, float]:
    before = cluster.read(Server, SERVER).status.order
    _power(cluster, "On")

    def is_ready() -> bool:
        server = cluster.read(Server, SERVER)
        is_new = server.status.order is not None and server.status.order != before
        return is_new and is_true(server.status.conditions, "Ready")

    _wait("the server is Ready", is_ready)
    timeline = boot_timeline(cluster.read(Server, SERVER).status)
    assert timeline.total_seconds is not None
    phases = {PHASE_NAMES[phase.stage]: phase.seconds or 0.0 for phase in timeline.phases}
    _power(cluster, "Off")
    return {**phases, "total": timeline.total_seconds}


def _boot_floor(cluster: Cluster, floor: Floor) -> float:
    cluster.delete(NODES, NODE)
    stop, ready = threading.Event(), threading.Event()
    nodes = Informer(cluster, NODES, field_selector=f"metadata.name={NODE}")

    def changed(_key: str, _old: object, new: dict[str, object] | None) -> None:
        conditions = ((new or {}).get("status") or {}).get("conditions") or []  # type: ignore[attr-defined]
        if any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions):
            ready.set()

    nodes.subscribe(changed)
    nodes.start(stop)
    nodes.wait_for_sync(30)
    began = time.monotonic()
    machine = floor.start()
    try:
        if not ready.wait(BOOT_SECONDS):
            sys.exit("boot_bench: the floor did not become Ready")
        return time.monotonic() - began
    finally:
        stop.set()
        machine.kill()
        machine.wait()
        cluster.delete(NODES, NODE)


def _power(cluster: Cluster, state: str) -> None:
    body = {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Server",
        "metadata": {"name": SERVER},
        "spec": {"powerState": state},
    }
    cluster.apply(body, manager="benchmark")
    if state == "Off":
        _wait("the server is off", lambda: _observed_power(cluster) == "Off")


def _observed_power(cluster: Cluster) -> str | None:
    power = cluster.read(Server, SERVER).status.power
    return power.state if power else None


def _wait(what: str, true: object) -> None:
    assert callable(true)
    deadline = time.monotonic() + BOOT_SECONDS
    while not true():
        if time.monotonic() > deadline:
            sys.exit(f"boot_bench: after {BOOT_SECONDS} s still not: {what}")
        time.sleep(0.5)


def write_table(
    ours: list[dict[str, float]], floors: list[float], root_bytes: int, options: argparse.Namespace, accelerator: str
) -> None:
    """tests/benchmarks/results/boot.md."""
    totals = [boot["total"] for boot in ours]
    ratios = [total / floor for total, floor in zip(totals, floors, strict=True)]
    root = root_bytes / 1e6
    rows = [
        "## A server's boot, by phase",
        "",
        f"{options.firmware} firmware in QEMU, {'emulated by TCG' if accelerator == 'tcg' else 'under KVM'}, 2 vCPU, "
        f"{options.memory} MiB, root {root:.0f} MB; one machine at a time, {options.repetitions} boots each, in turns",
        "with the floor: the same kernel and root, put into memory by QEMU, and a kubelet with certificates.",
        "Seconds, median (least to most), from power-on to the Node's Ready.",
        "",
        "| phase | seconds |",
        "|---|---|",
    ]
    for name in PHASE_NAMES.values():
        seconds = [boot[name] for boot in ours if name in boot]
        if seconds and name not in ("ordered", "Ready"):
            rows.append(f"| {name} | {_spread(seconds)} |")
    rows += [
        f"| **power-on to Ready** | {_spread(totals)} |",
        f"| floor | {_spread(floors)} |",
        f"| **ratio** | {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |",
        "",
    ]
    target = Path(__file__).parent / "results" / "boot.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(rows))
    print("\n".join(rows))


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    sys.exit(main())
