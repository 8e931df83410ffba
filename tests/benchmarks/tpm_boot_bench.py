"""What attestation adds to a boot: a server that proves itself by its TPM, beside the same server without one.

`python -m tests.benchmarks.tpm_boot_bench` as root. A lab with two UEFI servers is brought up, one with a TPM, on the
same image. Each is rebooted through its firmware by the maintenance executor, in turns, and which is first changes each
time. With a TPM firmware and kernel measure what they start, and the agent activates a credential, quotes and opens
what was sealed to it; without one it is admitted by order and address, as an Optional pool allows. The clock starts
when the boot intent is written.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from provisioner.cli.lab.parts import demo_state
from provisioner.cluster.client import Cluster
from provisioner.lab.network import LabNetwork
from tests.benchmarks.kexec_drive import Reboot, reboot

LAB: Final = "bench-tpm"
PROVES: Final = "r01-u01"
PLAIN: Final = "r01-u02"
BOOT_SECONDS: Final = 900
GOAL: Final = 1.05
HERE: Final = Path(__file__).parent

PARTS: Final = (
    ("stage-1 runs: firmware and kernel have measured", "", "Stage1"),
    ("Node Ready", "", "Ready"),
    ("Node Ready, from stage-1 on: what the protocol adds", "Stage1", "Ready"),
)
"""In words; since when, empty: since the boot intent; until when."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; returns how many goals were missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--memory", type=int, default=1024, help="MiB of each machine")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args(arguments)
    if options.inside:
        return measure(options)
    lab = [sys.executable, "-m", "provisioner.cli", "lab"]
    up = ["--servers", "UEFI,PlainUEFI", "--memory", str(options.memory), "--timeout", str(BOOT_SECONDS)]
    try:
        subprocess.run([*lab, "up", "--name", LAB, *up], check=True)
        inside = [sys.executable, "-m", "tests.benchmarks.tpm_boot_bench", "--inside", *(arguments or sys.argv[1:])]
        return subprocess.run(LabNetwork(LAB).command(inside), check=False).returncode
    finally:
        subprocess.run([*lab, "down", "--name", LAB], check=False)


def measure(options: argparse.Namespace) -> int:
    """Reboot in turns; runs inside the lab's network namespace."""
    state = demo_state(LAB)
    cluster = Cluster.connect(state.kubeconfig)
    found: dict[str, list[Reboot]] = {PROVES: [], PLAIN: []}
    load: list[float] = []
    for repetition in range(options.repetitions):
        for server in (PROVES, PLAIN) if repetition % 2 else (PLAIN, PROVES):
            last = reboot(cluster, state.directory, server, "Reboot")
            found[server].append(last)
            load.append(os.getloadavg()[0])
            said = ", ".join(f"{s} {last.stages[s]:.1f} s {last.processor[s]:.1f} CPU-s" for s in last.stages)
            print(f"{repetition + 1} {server}: {said}", file=sys.stderr, flush=True)
    accelerator = (state.cache / "labs" / f".{state.name}-accelerator").read_text()
    return write_table(found[PROVES], found[PLAIN], options, accelerator, statistics.median(load))


def write_table(
    proving: Sequence[Reboot], plain: Sequence[Reboot], options: argparse.Namespace, accelerator: str, load: float
) -> int:
    """tests/benchmarks/results/tpm_boot.md; returns how many goals were missed."""
    how = "emulated by TCG" if accelerator == "tcg" else "under KVM"
    rows = [
        "## What attestation adds to a boot",
        "",
        f"Two UEFI servers in QEMU, {how}, {options.memory} MiB, the same image; one has a TPM (swtpm), by which it",
        f"proves itself. {len(proving)} reboots each through the firmware, in turns, while the other idles. From the",
        "boot intent. Processor seconds are QEMU's and swtpm's. Median (least to most); a ratio is of neighbours in",
        f"time. Median load of the machine while measuring: {load:.1f} on {os.cpu_count()} cores.",
        "",
        "| until | | with a TPM | without | ratio | goal |",
        "|---|---|---|---|---|---|",
    ]
    missed = 0
    for until, start, end in PARTS:
        for unit, kind in (("seconds", "stages"), ("processor seconds", "processor")):
            ours, bare = ([_part(getattr(run, kind), start, end) for run in runs] for runs in (proving, plain))
            ratios = [one / other for one, other in zip(ours, bare, strict=True)]
            has_goal = (start, end) == ("", "Ready")
            missed += has_goal and statistics.median(ratios) > GOAL
            columns = f"{_spread(ours, 1)} | {_spread(bare, 1)} | {_spread(ratios, 2)}"
            rows.append(f"| {until} | {unit} | {columns} | {f'≤ {GOAL}' if has_goal else ''} |")
    (HERE / "results" / "tpm_boot.md").write_text("\n".join([*rows, ""]))
    print("\n".join(rows))
    return missed


def _part(moments: Mapping[str, float], start: str, end: str) -> float:
    return moments[end] - (moments[start] if start else 0.0)


def _spread(values: Sequence[float], digits: int) -> str:
    low, middle, high = (f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


if __name__ == "__main__":
    sys.exit(main())
