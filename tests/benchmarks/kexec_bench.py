"""A node's reboot by kexec into the staged image, and its reboot through the firmware, in the same machine.

`python -m tests.benchmarks.kexec_bench` as root. A lab with one UEFI server is brought up; then its Node is rebooted in
turns by `systemctl reboot` and by kexec, onto the same image, by the maintenance executor and the agent (kexec_drive).
The clock starts when the boot intent is written: waiting and draining before it are the same for both, and the image
was staged while the node was in use. Beside wall time stands the processor time of the emulator, which other load on
the machine hardly changes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lab.cli.parts import demo_state
from lab.demo.state import DemoState
from provisioner.api.nodes.maintenance import RebootMethod
from provisioner.cluster.client import Cluster
from tests.benchmarks.kexec_drive import Reboot, load, reboot, save, was_seen
from tests.benchmarks.own_lab import accelerator_of, run_in_lab
from tests.benchmarks.record import Check, Goal, begin, ratios, say, spread

LAB: Final = "bench-kexec"
SERVER: Final = "r01-u01"
GOALS: Final = {
    "Stage1": Goal("seconds until stage-1 runs by kexec, to those by firmware", 0.5),
    "Ready": Goal("seconds until the Node is Ready by kexec, to those by firmware", 0.7),
}
NAMES: Final = {
    "Stage1": "stage-1 runs",
    "System": "system starts",
    "Kubelet": "join configuration handed out",
    "Ready": "Node Ready",
    "Completed": "checked, in use again",
}
FIRMWARE_MINUTES: Final = (4, 8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--memory", type=int, default=1024, help="MiB of the machine")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args(arguments)
    if options.inside:
        save(measure(demo_state(LAB), options.repetitions), options.inside)
        return 0
    run = begin("kexec")
    up = ["--servers=UEFI", f"--memory={options.memory}"]
    with tempfile.TemporaryDirectory() as work:
        written = Path(work) / "reboots.json"
        run_in_lab(LAB, up, "kexec_bench", [*(arguments or sys.argv[1:]), "--inside", str(written)])
        found = load(written)
    return run.finish(table(found, options.memory, accelerator_of(LAB)), check_goals(found), options.repetitions)


def measure(state: DemoState, repetitions: int) -> dict[str, list[Reboot]]:
    """Reboot in turns; runs inside the lab's network namespace."""
    cluster = Cluster.connect(state.kubeconfig)
    found: dict[str, list[Reboot]] = {"Reboot": [], "Kexec": []}
    methods: tuple[RebootMethod, ...] = ("Reboot", "Kexec")
    for repetition in range(repetitions):
        for method in methods:
            last = reboot(cluster, state.directory, SERVER, method)
            found[method].append(last)
            stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in last.stages.items())
            say(f"{repetition + 1} {method}: {stages}")
    return found


def check_goals(found: Mapping[str, Sequence[Reboot]]) -> list[Check]:
    return [goal.check(NAMES[stage], to_firmware(found, stage, "stages")) for stage, goal in GOALS.items()]


def table(found: Mapping[str, Sequence[Reboot]], memory_mib: int, accelerator: str) -> str:
    firmware, kexec = found["Reboot"], found["Kexec"]
    rows = [
        "## Rebooting a node: kexec into the staged image, and the firmware's way",
        "",
        f"The same UEFI machine in QEMU, {'emulated by TCG' if accelerator == 'tcg' else 'under KVM'}, 2 vCPU, "
        f"{memory_mib} MiB, and the same image; {len(kexec)} reboots each, in turns. Seconds, median (least to most),",
        "from the boot intent on the Node. CPU: the emulator's processor seconds. A ratio is of neighbours in time.",
        "",
        "| until | firmware | kexec | ratio | CPU firmware | CPU kexec | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for stage, name in NAMES.items():
        if not was_seen(stage, firmware, kexec):
            rows.append(f"| {name} | not seen in each reboot | | | | | |")
            continue
        columns = [spread([run.stages[stage] for run in runs]) for runs in (firmware, kexec)]
        cpu = [spread([run.processor[stage] for run in runs]) for runs in (firmware, kexec)]
        rows.append(
            f"| {name} | {' | '.join(columns)} | **{spread(to_firmware(found, stage, 'stages'), '.2f')}** "
            f"| {' | '.join(cpu)} | {spread(to_firmware(found, stage, 'processor'), '.2f')} |"
        )
    staging = spread([run.staging for run in kexec])
    rows += ["", f"Staging beside a running node (before the clock starts) took {staging} s."]
    if not was_seen("Firmware", firmware):
        return "\n".join(rows)
    own = statistics.median(run.stages["Stage1"] - run.stages["Firmware"] for run in firmware)
    rows += [
        "",
        "Real firmware takes minutes, this one seconds. Calculated, not measured: the same figures with the part of",
        f"firmware and iPXE ({own:.1f} s here, from the first DHCP request until stage-1 runs) replaced.",
        "",
        "| firmware takes | firmware's way to Ready | kexec to Ready | ratio |",
        "|---|---|---|---|",
    ]
    long_way, short_way = (statistics.median(run.stages["Ready"] for run in runs) for runs in (firmware, kexec))
    for minutes in FIRMWARE_MINUTES:
        replaced = long_way + minutes * 60 - own
        rows.append(
            f"| {minutes} min (calculated) | {replaced:.0f} s | {short_way:.0f} s | {short_way / replaced:.2f} |"
        )
    return "\n".join(rows)


def to_firmware(found: Mapping[str, Sequence[Reboot]], stage: str, measure: str) -> list[float]:
    """Ratios of neighbours in time."""
    kexec, firmware = ([getattr(run, measure)[stage] for run in found[method]] for method in ("Kexec", "Reboot"))
    return ratios(kexec, firmware)


if __name__ == "__main__":
    sys.exit(main())
