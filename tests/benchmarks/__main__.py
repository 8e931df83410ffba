"""`make bench`: runs the benchmarks one after the other and puts their tables into RESULTS.md.

    python -m tests.benchmarks [NAME…] [-- ARGUMENT…]

Names: dhcp, scripts, boot, kexec; all of them if none is given. What follows `--` goes to each (see their --help).
"""

from __future__ import annotations

import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
NAMES: Final = ("dhcp", "scripts", "boot", "kexec")


def main(arguments: list[str]) -> int:
    """Run what was asked for; returns how many benchmarks failed."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, passed_on = arguments[:split] or list(NAMES), arguments[split + 1 :]
    if unknown := set(names) - set(NAMES):
        sys.exit(f"no benchmark called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    failed = sum(
        subprocess.run([sys.executable, "-m", f"tests.benchmarks.{name}_bench", *passed_on], check=False).returncode
        != 0
        for name in names
    )
    write_results()
    return failed


def write_results() -> None:
    """RESULTS.md: a head, and each benchmark's own table as it was last written."""
    parts = [(HERE / "results" / f"{name}.md") for name in NAMES]
    head = (
        "# Figures\n\n"
        "Written by `make bench`. Each table was measured in one run, peers and bounds beside what is ours; compare\n"
        "within a table only. Ratios are medians over the repetitions named there.\n\n"
        f"Last run: {datetime.now(UTC):%Y-%m-%d}, {cpu_count()} cores, Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}.\n\n"
    )
    body = "\n".join(path.read_text().strip() + "\n" for path in parts if path.exists())
    (HERE / "RESULTS.md").write_text(head + body)


def cpu_count() -> int:
    """Processors of this machine."""
    return Path("/proc/cpuinfo").read_text().count("processor\t")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
