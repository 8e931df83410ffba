"""`provisioner rack register` of a long list, and how much longer that takes than its applies alone.

`python -m tests.benchmarks.register_bench --servers 1000 10000`. For each measurement a fresh etcd and API server, with
the racks in it. The bound is what the same API server takes for the very same applies over as many connections, from a
loop that does nothing else; the two take turns. Then the same list is registered once more, which writes nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from lab.binaries.obtain import find_binaries
from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster
from provisioner.inventory.lists.packing_list import read_packing_list
from provisioner.inventory.registrar import plan_registration
from tests.benchmarks.bare_writes import CONNECTIONS, apply_body, seconds_of_writes
from tests.benchmarks.processor_time import seconds_of_children
from tests.benchmarks.record import Check, Goal, begin, ratios, say, spread
from tests.conftest import install
from tests.tools import CACHE

PER_RACK: Final = 40
GOALS: Final = {
    "ratio": Goal("seconds of `rack register`, to those of its applies alone", 1.3),
    "doubling": Goal("by how much twice the servers multiply its seconds", 2.2),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, nargs="+", default=[1000, 2000, 10_000])
    parser.add_argument("--repetitions", type=int, default=3)
    options, _ = parser.parse_known_args(arguments)
    run = begin("register")
    results: dict[int, list[dict[str, float]]] = {size: [] for size in options.servers}
    for repetition in range(options.repetitions):
        for size in options.servers:
            seconds: dict[str, float] = {}
            for contender in ("bare", "register") if repetition % 2 else ("register", "bare"):
                with (
                    tempfile.TemporaryDirectory(prefix="register-bench-") as folder,
                    fresh_plane(Path(folder)) as plane,
                ):
                    seconds |= (measure_bare if contender == "bare" else measure_register)(plane, size, Path(folder))
            results[size].append(seconds)
            say(f"{repetition + 1}: {size} servers: {seconds}")
    return run.finish(table(results), check_goals(results), options.repetitions)


@contextmanager
def fresh_plane(folder: Path) -> Iterator[ControlPlane]:
    """etcd and an API server with the project's manifests; nobody else talks to them."""
    binaries = find_binaries(assets=None, cache=CACHE, allow_download=False, allow_build=False)
    with ControlPlane(folder / "plane", binaries) as plane:
        install(Cluster.connect(plane.kubeconfig))
        os.kill(plane.pids()["kube-controller-manager"], signal.SIGTERM)
        yield plane


def packing_list(size: int) -> str:
    """A vendor's CSV of so many servers, 40 a rack."""
    rows = (
        f"R{n // PER_RACK:03d};{n % PER_RACK + 1};SN{n:06d};02-00-00-{n >> 16:02x}-{n >> 8 & 255:02x}-{n & 255:02x};"
        f"10.{90 + (n >> 16)}.{n >> 8 & 255}.{n & 255}\n"
        for n in range(size)
    )
    return "Rack;U position;Serial Number;PXE MAC;BMC IP\n" + "".join(rows)


def make_racks(cluster: Cluster, size: int) -> None:
    for number in range(-(-size // PER_RACK)):
        subnet = {"name": "boot", "cidr": f"10.{100 + (number >> 8)}.{number & 255}.0/24"}
        rack = {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Rack", "metadata": {"name": f"r{number:03d}"}}
        cluster.apply(rack | {"spec": {"subnets": [subnet]}}, manager="bench")


def measure_bare(plane: ControlPlane, size: int, _folder: Path) -> dict[str, float]:
    """Seconds of the applies alone: the very bodies that registration would send."""
    cluster = Cluster.connect(plane.kubeconfig)
    make_racks(cluster, size)
    plan = plan_registration(cluster, read_packing_list(packing_list(size).encode(), "list.csv", pool="gpu"))
    bodies: list[Any] = [step.body for step in plan.steps]
    used = time.process_time()
    seconds = seconds_of_writes(plane.kubeconfig, bodies, apply_body)
    return {"bare": seconds, "bare processor": time.process_time() - used}


def measure_register(plane: ControlPlane, size: int, folder: Path) -> dict[str, float]:
    """Seconds of the command, from its start to its end: the first time, and once more without change."""
    make_racks(Cluster.connect(plane.kubeconfig), size)
    file = folder / "list.csv"
    file.write_text(packing_list(size))
    command = [sys.executable, "-m", "provisioner.cli", "rack", "register", str(file), "--pool", "gpu", "-o", "json"]
    seconds = {}
    for name, action in (("register", "create"), ("again", "unchanged")):
        began, used = time.monotonic(), seconds_of_children()
        ran = subprocess.run([*command, "--kubeconfig", str(plane.kubeconfig)], stdout=subprocess.PIPE, check=True)
        seconds[name] = time.monotonic() - began
        seconds[f"{name} processor"] = seconds_of_children() - used
        done = [step["action"] for step in json.loads(ran.stdout)["steps"]]
        if done != [action] * size:
            sys.exit(f"register_bench: {done.count(action)} of {size} servers: {action}")
    return seconds


def doublings(results: dict[int, list[dict[str, float]]]) -> dict[int, list[float]]:
    """What each doubling from the next smaller size on multiplies the time by, if it grows evenly between the two."""
    sizes = sorted(results)
    return {
        size: [
            2 ** (math.log(more["register"] / less["register"]) / math.log(size / smaller))
            for less, more in zip(results[smaller], results[size], strict=True)
        ]
        for smaller, size in pairwise(sizes)
    }


def to_applies(runs: Sequence[dict[str, float]]) -> list[float]:
    return ratios([run["register"] for run in runs], [run["bare"] for run in runs])


def check_goals(results: dict[int, list[dict[str, float]]]) -> list[Check]:
    checks = [GOALS["ratio"].check(f"{size:,} servers", to_applies(runs)) for size, runs in sorted(results.items())]
    return checks + [
        GOALS["doubling"].check(f"{size:,} servers", factors) for size, factors in doublings(results).items()
    ]


def table(results: dict[int, list[dict[str, float]]]) -> str:
    rows = [
        "## Registering a packing list",
        "",
        "`provisioner rack register`, start of the program included, against the same applies from a bare loop, both "
        f"over {CONNECTIONS} connections to a fresh API server and etcd on the same {os.cpu_count()} processors; "
        "repetitions take turns. Seconds, median (least to most).",
        "",
        "| servers | register | its applies alone | ratio | once more, unchanged | by doubling "
        "| client's processor ms a server | of the loop |",
        "|---|---|---|---|---|---|---|---|",
    ]
    by_doubling = doublings(results)
    for size, runs in sorted(results.items()):
        cells = [spread([run[what] for run in runs]) for what in ("register", "bare")]
        cells += [spread(to_applies(runs), ".2f"), spread([run["again"] for run in runs])]
        cells.append(spread(by_doubling[size], ".2f") if size in by_doubling else "-")
        cells += [spread([1000 * run[f"{who} processor"] / size for run in runs]) for who in ("register", "bare")]
        rows.append(f"| {size:,} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    sys.exit(main())
