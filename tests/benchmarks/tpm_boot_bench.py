"""What attestation adds to a boot: a server that proves itself by its TPM, beside the same server without one.

`python -m tests.benchmarks.tpm_boot_bench` as root. A lab with two UEFI servers is brought up, one with a TPM, on the
same image. Each is rebooted through its firmware by the maintenance executor, in turns, and which is first changes each
time. With a TPM firmware and kernel measure what they start, and the agent activates a credential, quotes and opens
what was sealed to it; without one it is admitted by order and address, as an Optional pool allows. The clock starts
when the boot intent is written.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.cli.parts import demo_state
from provisioner.cluster.client import Cluster
from tests.benchmarks.kexec_drive import Reboot, load, reboot, save
from tests.benchmarks.own_lab import accelerator_of, run_in_lab
from tests.benchmarks.record import Check, Goal, begin, ratios, say, spread

LAB: Final = "bench-tpm"
PROVES: Final = "r01-u01"
PLAIN: Final = "r01-u02"
GOALS: Final = {
    "Stage1": Goal("until stage-1 runs with a TPM, to the same without", 1.05),
    "Ready": Goal("until the Node is Ready with a TPM, to the same without", 1.05),
}
KINDS: Final = (("seconds", "stages"), ("processor seconds", "processor"))

PARTS: Final = (
    ("stage-1 runs: firmware and kernel have measured", "", "Stage1"),
    ("Node Ready", "", "Ready"),
    ("Node Ready, from stage-1 on: what the protocol adds", "Stage1", "Ready"),
)
"""In words; since when, empty: since the boot intent; until when."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--memory", type=int, default=1024, help="MiB of each machine")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args(arguments)
    if options.inside:
        save(measure(options.repetitions), options.inside)
        return 0
    run = begin("tpm_boot")
    up = ["--servers=UEFI,PlainUEFI", f"--memory={options.memory}"]
    with tempfile.TemporaryDirectory() as work:
        written = Path(work) / "reboots.json"
        run_in_lab(LAB, up, "tpm_boot_bench", [*(arguments or sys.argv[1:]), "--inside", str(written)])
        found = load(written)
    proving, plain = found[PROVES], found[PLAIN]
    text = table(proving, plain, options.memory, accelerator_of(LAB))
    return run.finish(text, check_goals(proving, plain), options.repetitions)


def measure(repetitions: int) -> dict[str, list[Reboot]]:
    """Reboot in turns; runs inside the lab's network namespace."""
    state = demo_state(LAB)
    cluster = Cluster.connect(state.kubeconfig)
    found: dict[str, list[Reboot]] = {PROVES: [], PLAIN: []}
    for repetition in range(repetitions):
        for server in (PROVES, PLAIN) if repetition % 2 else (PLAIN, PROVES):
            last = reboot(cluster, state.directory, server, "Reboot")
            found[server].append(last)
            stages = ", ".join(f"{s} {last.stages[s]:.1f} s {last.processor[s]:.1f} CPU-s" for s in last.stages)
            say(f"{repetition + 1} {server}: {stages}")
    return found


def check_goals(proving: Sequence[Reboot], plain: Sequence[Reboot]) -> list[Check]:
    return [
        goal.check(unit, ratios(*(_parts(runs, kind, "", stage) for runs in (proving, plain))))
        for stage, goal in GOALS.items()
        for unit, kind in KINDS
    ]


def table(proving: Sequence[Reboot], plain: Sequence[Reboot], memory_mib: int, accelerator: str) -> str:
    how = "emulated by TCG" if accelerator == "tcg" else "under KVM"
    rows = [
        "## What attestation adds to a boot",
        "",
        f"Two UEFI servers in QEMU, {how}, {memory_mib} MiB, the same image; one has a TPM (swtpm), by which it",
        f"proves itself. {len(proving)} reboots each through the firmware, in turns, while the other idles. From the",
        "boot intent. Processor seconds are QEMU's and swtpm's. Median (least to most); a ratio is of neighbours in",
        "time.",
        "",
        "| until | | with a TPM | without | ratio |",
        "|---|---|---|---|---|",
    ]
    for until, start, end in PARTS:
        for unit, kind in KINDS:
            ours, bare = (_parts(runs, kind, start, end) for runs in (proving, plain))
            rows.append(f"| {until} | {unit} | {spread(ours)} | {spread(bare)} | {spread(ratios(ours, bare), '.2f')} |")
    return "\n".join(rows)


def _parts(runs: Sequence[Reboot], kind: str, start: str, end: str) -> list[float]:
    """Of each reboot, from one stage (empty: the boot intent) to another."""
    return [_part(getattr(run, kind), start, end) for run in runs]


def _part(moments: Mapping[str, float], start: str, end: str) -> float:
    return moments[end] - (moments[start] if start else 0.0)


if __name__ == "__main__":
    sys.exit(main())
