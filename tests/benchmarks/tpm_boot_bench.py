"""What a TPM adds to a virtual server's boot: firmware and kernel that measure, and swtpm, which is measured into.

`python -m tests.benchmarks.tpm_boot_bench` as root. The same UEFI server with the same iPXE, kernel and init boots with
a TPM and without, in turns; which is first changes each time. What the join adds (a quote and an activation) is not in
it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from provisioner.cli.lab.parts import demo_state
from provisioner.image.finished.store import part_files
from provisioner.lab.tools import obtain_tools
from tests.benchmarks.bare_boot import BareBoot, Told

GOAL: Final = 1.05
HERE: Final = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; returns how many goals were missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--kernel", type=Path, help="bzImage; else that of the image which `make demo` built")
    options, _ = parser.parse_known_args(arguments)
    state = demo_state("demo")
    kernel = options.kernel or part_files(Path(state.image_record("gpu").read_text()))["kernel"]
    found: dict[bool, list[Told]] = {True: [], False: []}
    with tempfile.TemporaryDirectory(prefix="boot-") as folder:
        bare = BareBoot(obtain_tools(state.cache), kernel, Path(folder))
        with bare.site() as network:
            for repetition in range(options.repetitions):
                for has_tpm in (True, False) if repetition % 2 else (False, True):
                    told = bare.boot(network, has_tpm=has_tpm)
                    found[has_tpm].append(told)
                    words = f"{'with' if has_tpm else 'without'} a TPM {told.seconds:.1f} s"
                    print(f"{repetition + 1}: {words}, {told.processor:.1f} CPU-s", file=sys.stderr, flush=True)
    return write_table(found[True], found[False])


def write_table(having: Sequence[Told], without: Sequence[Told]) -> int:
    """tests/benchmarks/results/tpm_boot.md; returns how many goals were missed."""
    rows = [
        "## A boot with and without a TPM",
        "",
        "UEFI server in QEMU, emulated by TCG, 2 vCPU, 1024 MiB; PXE, iPXE, Debian's kernel, from power-on to its",
        f"init, which reads the registers; {len(having)} boots each, in turns. Processor seconds are QEMU's and",
        "swtpm's. Median (least to most); a ratio is of one repetition.",
        "",
        f"| | with a TPM | without | ratio (goal {GOAL}) |",
        "|---|---|---|---|",
    ]
    missed = 0
    for name, field in (("seconds", "seconds"), ("processor seconds", "processor")):
        ours, bare = ([getattr(told, field) for told in each] for each in (having, without))
        ratios = [one / other for one, other in zip(ours, bare, strict=True)]
        missed += field == "processor" and statistics.median(ratios) > GOAL
        rows.append(f"| {name} | {_spread(ours, 1)} | {_spread(bare, 1)} | {_spread(ratios, 2)} |")
    (HERE / "results" / "tpm_boot.md").write_text("\n".join([*rows, ""]))
    print("\n".join(rows))
    return missed


def _spread(values: Sequence[float], digits: int) -> str:
    low, middle, high = (f"{value:.{digits}f}" for value in (min(values), statistics.median(values), max(values)))
    return f"{middle} ({low} to {high})"


if __name__ == "__main__":
    sys.exit(main())
