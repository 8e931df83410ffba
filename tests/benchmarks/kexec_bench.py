"""A node's reboot by kexec into the staged image, and its reboot through the firmware, in the same machine.

`python -m tests.benchmarks.kexec_bench` as root. A lab with one UEFI server is brought up; then its Node is rebooted in
turns by `systemctl reboot` and by kexec, onto the same image, by the maintenance executor and the agent (kexec_drive).
The clock starts when the boot intent is written: waiting and draining before it are the same for both, and the image
was staged while the node was in use. Beside wall time stands the processor time of the emulator, which other load on
the machine hardly changes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from provisioner.api.maintenance import RebootMethod
from provisioner.cluster.client import Cluster
from provisioner.lab.demo.state import DemoState
from provisioner.lab.network import LabNetwork
from tests.benchmarks.kexec_drive import Reboot, reboot

LAB: Final = "bench-kexec"
SERVER: Final = "r01-u01"
BOOT_SECONDS: Final = 900
GOALS: Final = {"Stage1": 0.5, "Ready": 0.7}
NAMES: Final = {
    "Stage1": "stage-1 runs",
    "System": "system starts",
    "Token": "agent asks to join",
    "Ready": "Node Ready",
    "Completed": "checked, in use again",
}
FIRMWARE_MINUTES: Final = (4, 8)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--memory", type=int, default=1024, help="MiB of the machine")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options, _ = parser.parse_known_args(arguments)
    cache = Path(os.environ.get("PROVISIONER_CACHE", Path.home() / ".cache/provisioner"))
    state = DemoState(cache=cache, name=LAB)
    if options.inside:
        measure(state, options)
        return 0
    lab = [sys.executable, "-m", "provisioner.cli", "lab"]
    up = ["--servers", "UEFI", "--memory", str(options.memory), "--timeout", str(BOOT_SECONDS)]
    try:
        subprocess.run([*lab, "up", "--name", LAB, *up], check=True)
        inside = [sys.executable, "-m", "tests.benchmarks.kexec_bench", "--inside", *(arguments or sys.argv[1:])]
        return subprocess.run(LabNetwork(LAB).command(inside), check=False).returncode
    finally:
        subprocess.run([*lab, "down", "--name", LAB], check=False)


def measure(state: DemoState, options: argparse.Namespace) -> None:
    """Reboot in turns; runs inside the lab's network namespace."""
    cluster = Cluster.connect(state.kubeconfig)
    accelerator = (state.cache / "labs" / f".{state.name}-accelerator").read_text()
    found: dict[RebootMethod, list[Reboot]] = {"Reboot": [], "Kexec": []}
    methods: tuple[RebootMethod, ...] = ("Reboot", "Kexec")
    load: list[float] = []
    for repetition in range(options.repetitions):
        for method in methods:
            found[method].append(reboot(cluster, state.directory, SERVER, method))
            load.append(os.getloadavg()[0])
            last = found[method][-1]
            said = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in last.stages.items())
            print(f"{repetition + 1} {method}: {said}", file=sys.stderr, flush=True)
    write_table(found, options, accelerator, statistics.median(load))


def write_table(
    found: dict[RebootMethod, list[Reboot]], options: argparse.Namespace, accelerator: str, load: float
) -> None:
    """tests/benchmarks/results/kexec.md."""
    firmware, kexec = found["Reboot"], found["Kexec"]
    rows = [
        "## Rebooting a node: kexec into the staged image, and the firmware's way",
        "",
        f"The same UEFI machine in QEMU, {'emulated by TCG' if accelerator == 'tcg' else 'under KVM'}, 2 vCPU, "
        f"{options.memory} MiB, and the same image; {options.repetitions} reboots each, in turns. Seconds, median",
        "(least to most), from the boot intent on the Node. CPU: the emulator's processor seconds. Median load of the",
        f"machine while measuring: {load:.1f} on {os.cpu_count()} cores.",
        "",
        "| until | firmware | kexec | ratio | goal | CPU firmware | CPU kexec | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for stage, name in NAMES.items():
        columns = [spread([run.stages[stage] for run in runs]) for runs in (firmware, kexec)]
        cpu = [spread([run.processor[stage] for run in runs]) for runs in (firmware, kexec)]
        goal = f"≤ {GOALS[stage]}" if stage in GOALS else ""
        rows.append(
            f"| {name} | {columns[0]} | {columns[1]} | **{ratio(found, stage, 'stages'):.2f}** | {goal} "
            f"| {cpu[0]} | {cpu[1]} | {ratio(found, stage, 'processor'):.2f} |"
        )
    rows += [
        "",
        f"Staging beside a running node (before the clock starts) took {spread([run.staging for run in kexec])} s.",
        "",
        "Real firmware takes minutes, this one seconds. Calculated, not measured: the same figures with the",
        f"firmware's part ({median_firmware(firmware):.1f} s here until stage-1 is loaded) replaced.",
        "",
        "| firmware takes | firmware's way to Ready | kexec to Ready | ratio |",
        "|---|---|---|---|",
    ]
    for minutes in FIRMWARE_MINUTES:
        long_way = statistics.median(run.stages["Ready"] for run in firmware)
        long_way += minutes * 60 - median_firmware(firmware)
        short_way = statistics.median(run.stages["Ready"] for run in kexec)
        rows.append(
            f"| {minutes} min (calculated) | {long_way:.0f} s | {short_way:.0f} s | {short_way / long_way:.2f} |"
        )
    target = Path(__file__).parent / "results" / "kexec.md"
    target.parent.mkdir(exist_ok=True)
    target.write_text("\n".join(rows) + "\n")
    print("\n".join(rows))


def ratio(found: dict[RebootMethod, list[Reboot]], stage: str, measure: str) -> float:
    """Median of the ratios of neighbours in time."""
    pairs = zip(found["Kexec"], found["Reboot"], strict=True)
    return statistics.median(
        getattr(kexec, measure)[stage] / getattr(firmware, measure)[stage] for kexec, firmware in pairs
    )


def median_firmware(runs: Sequence[Reboot]) -> float:
    """What of a reboot is the firmware's and iPXE's: from the firmware's first DHCP request until stage-1 speaks."""
    return statistics.median(run.stages["Stage1"] - run.stages["Firmware"] for run in runs)


def spread(values: Sequence[float]) -> str:
    """`12.3 (11.9 to 14.0)`."""
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


if __name__ == "__main__":
    sys.exit(main())
