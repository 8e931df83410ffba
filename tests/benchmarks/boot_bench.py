"""The boot of a demo server by phase, and its ratio to the floor measured in the same run.

`python -m tests.benchmarks.boot_bench` as root. For each recipe a lab with one server of the given firmware is brought
up; then the server and the floor of that image (see boot_floor) are booted in turns, one machine at a time. Times are
from power-on to the Node's Ready.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from lab.cli.parts import demo_state
from lab.demo.state import ADDRESS, DemoState
from lab.tools import Tools, obtain_tools
from provisioner.api import Server
from provisioner.api.machinery.conditions import is_true
from provisioner.api.servers.boot_timeline import PHASE_NAMES, boot_timeline
from provisioner.cluster.client import Cluster
from provisioner.cluster.informer import Informer
from provisioner.cluster.resources import NODES
from tests.benchmarks.boot_floor import MAC, NODE, Floor
from tests.benchmarks.own_lab import BOOT_SECONDS, accelerator_of, run_in_lab
from tests.benchmarks.record import Goal, begin, ratios, spread

LAB: Final = "bench"
SERVER: Final = "r01-u01"
RECIPES: Final = ("cpu-node", "gpu-node")
GOALS: Final[dict[str, Goal]] = {}


@dataclass
class Measured:
    """Of one recipe's image. `waits`: seconds for which firmware held an offer of DHCP before it took it.

    `floor_parts`: of each floor, seconds until stage-1 has its network, then until the kubelet asks, then to Ready.
    """

    recipe: str
    root_bytes: int
    accelerator: str
    ours: list[dict[str, float]] = field(default_factory=list)
    floors: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    floor_parts: list[list[float]] = field(default_factory=list)

    def totals(self) -> list[float]:
        return [boot["total"] for boot in self.ours]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--firmware", default="UEFI", choices=["UEFI", "BIOS"])
    parser.add_argument("--memory", type=int, default=1024, help="MiB of the machine")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args(arguments)
    if options.inside:
        recipe, written = options.inside
        Path(written).write_text(json.dumps(asdict(measure(demo_state(LAB), recipe, options))))
        return 0
    run = begin("boot")
    with tempfile.TemporaryDirectory() as work:
        found = [_measure_in_lab(recipe, Path(work) / recipe, options, arguments or sys.argv[1:]) for recipe in RECIPES]
    return run.finish(table(found, options.firmware, options.memory), [], options.repetitions)


def _measure_in_lab(recipe: str, written: Path, options: argparse.Namespace, arguments: Sequence[str]) -> Measured:
    up = [f"--recipe={recipe}", f"--servers={options.firmware}", f"--memory={options.memory}"]
    run_in_lab(LAB, up, "boot_bench", [*arguments, "--inside", recipe, str(written)])
    return Measured(**json.loads(written.read_text()))


def measure(state: DemoState, recipe: str, options: argparse.Namespace) -> Measured:
    """Boot in turns; runs inside the lab's network namespace."""
    cluster, tools = Cluster.connect(state.kubeconfig), obtain_tools(state.cache)
    accelerator = accelerator_of(LAB)
    folder = Path(state.image_record("gpu").read_text())
    floor = Floor(state, tools, folder, options.memory, accelerator)
    floor.prepare()
    found = Measured(recipe, floor.root_bytes(), accelerator)
    _power(cluster, "Off")
    for repetition in range(options.repetitions):
        with _sniffed(tools, "ether", "src", MAC) as packets:
            began = time.time()
            found.floors.append(_boot_floor(cluster, floor))
        first = next(when for when, _ in packets) - began
        asks = next(when for when, words in packets if f" > {ADDRESS}.6443" in words) - began
        found.floor_parts.append([first, asks - first, found.floors[-1] - asks])
        with _sniffed(tools, "udp", "port", "67", "or", "udp", "port", "68") as packets:
            found.ours.append(_boot_ours(cluster))
        found.waits += _firmware_wait(packets)
        told = f"ours {found.totals()[-1]:.1f} s, floor {found.floors[-1]:.1f} s"
        print(f"{recipe} {repetition + 1}: {told}", file=sys.stderr, flush=True)
    return found


@contextmanager
def _sniffed(tools: Tools, *what: str) -> Iterator[list[tuple[float, str]]]:
    """Packets that match a filter of tcpdump, with their seconds since 1970; there when the block has ended."""
    packets: list[tuple[float, str]] = []
    command = tools.command(["tcpdump", "-lnqtt", "-i", "boot0", *what])
    sniffer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield packets
    finally:
        sniffer.terminate()
        said, _ = sniffer.communicate(timeout=30)
    for line in said.splitlines():
        when, _, words = line.partition(" ")
        if when:  # else the rest of what is told of the packet before
            packets.append((float(when), words))


def _firmware_wait(packets: Sequence[tuple[float, str]]) -> list[float]:
    """How long firmware kept the first offer of DHCP before it asked for it; nothing if it was not seen."""
    offered = next((when for when, words in packets if " > 255.255.255.255.67" not in words), None)
    asks = (when for when, words in packets if " > 255.255.255.255.67" in words)
    taken = next((when for when in asks if offered is not None and when > offered), None)
    return [] if offered is None or taken is None else [taken - offered]


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


def table(found: Sequence[Measured], firmware: str, memory_mib: int) -> str:
    emulated = "emulated by TCG" if found[0].accelerator == "tcg" else "under KVM"
    rows = [
        "## A server's boot, by phase",
        "",
        f"{firmware} firmware in QEMU, {emulated}, 2 vCPU, {memory_mib} MiB; one machine at a time, "
        f"{len(found[0].ours)} boots each, in turns",
        "with the floor: the same kernel and layers, put into memory by QEMU, and a kubelet with certificates.",
        "Seconds, median (least to most), from power-on to the Node's Ready.",
        "",
        "| phase | " + " | ".join(f"{each.recipe}, {each.root_bytes / 1e6:.0f} MB of layers" for each in found) + " |",
        "|---|" + "---|" * len(found),
    ]

    def row(name: str, cells: Sequence[str]) -> None:
        rows.append(f"| {name} | {' | '.join(cells)} |")

    for name in PHASE_NAMES.values():
        seconds = [[boot[name] for boot in each.ours if name in boot] for each in found]
        if all(seconds) and name not in ("ordered", "Ready"):
            row(name, [spread(each) for each in seconds])
    row("**power-on to Ready**", [spread(each.totals()) for each in found])
    row("floor", [spread(each.floors) for each in found])
    for place, part in enumerate(
        ("its stage-1 has the network", "its kubelet asks the API server", "its Node is Ready")
    ):
        row(f"floor, until {part}", [spread([parts[place] for parts in each.floor_parts]) for each in found])
    row("**ratio to the floor**", [spread(ratios(each.totals(), each.floors), ".2f") for each in found])
    if all(each.waits for each in found):
        row("of it, firmware keeps DHCP's offer", [spread(each.waits) for each in found])
        without = [[total - statistics.median(each.waits) for total in each.totals()] for each in found]
        cells = [spread(ratios(ours, each.floors), ".2f") for ours, each in zip(without, found, strict=True)]
        row("ratio without that (calculated)", cells)
    first, *others = found
    for each in others:
        to_first = ratios(each.totals(), first.totals())
        rows += ["", f"Power-on to Ready, {each.recipe} to {first.recipe}: **{spread(to_first, '.2f')}**."]
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
