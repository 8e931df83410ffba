"""`make bench`: runs the benchmarks one after the other and puts their tables into RESULTS.md.

    python -m tests.benchmarks [NAME…] [-- ARGUMENT…]

Names: dhcp, scripts, register, boot, tpm_boot, kexec, layers, scale, hung, bmc, rollout, rollout_scale, network, vpc,
evpn, swarm, web, attestation; all of them if none is given. What follows `--` goes to each (see their --help).
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
NAMES: Final = (
    "dhcp",
    "scripts",
    "register",
    "boot",
    "tpm_boot",
    "kexec",
    "layers",
    "scale",
    "hung",
    "bmc",
    "rollout",
    "rollout_scale",
    "network",
    "vpc",
    "evpn",
    "swarm",
    "web",
    "attestation",
)


def main(arguments: list[str]) -> int:
    """Run what was asked for; returns how many benchmarks failed."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, passed_on = arguments[:split] or list(NAMES), arguments[split + 1 :]
    if unknown := set(names) - set(NAMES):
        sys.exit(f"no benchmark called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    failed = 0
    for name in names:
        table, load = HERE / "results" / f"{name}.md", os.getloadavg()[2]
        before = table.stat().st_mtime_ns if table.exists() else 0
        command = [sys.executable, "-m", f"tests.benchmarks.{name}_bench", *passed_on]
        failed += subprocess.run(command, check=False).returncode != 0
        if table.exists() and table.stat().st_mtime_ns != before:
            table.write_text(f"{table.read_text().strip()}\n\n{origin(load)}\n")
    write_results()
    return failed


def origin(load: float) -> str:
    """When, of which commit and where a table was measured; `load` is the load average of the quarter before."""
    commit = git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = (
        " with changes"
        if git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)tests/benchmarks")
        else ""
    )
    return (
        f"Measured {datetime.now(UTC):%Y-%m-%d} at commit {commit}{changed}; {cpu_count()} cores, Linux "
        f"{platform.release().split('-')[0]}, Python {platform.python_version()}, load average before: {load:.1f}."
    )


def git(*arguments: str) -> str:
    """What git answers; nothing outside of a checkout."""
    ran = subprocess.run(["git", "-C", str(HERE), *arguments], capture_output=True, text=True, check=False)
    return ran.stdout.strip()


def write_results() -> None:
    """RESULTS.md: a head, and each benchmark's own table as it was last written, with its date and commit."""
    parts = [(HERE / "results" / f"{name}.md") for name in NAMES]
    head = (
        "# Figures\n\n"
        "Written by `make bench`. Each table was measured in one run, peers and bounds beside what is ours; compare\n"
        "within a table only. Ratios are medians over the repetitions named there.\n\n"
    )
    body = "\n".join(path.read_text().strip() + "\n" for path in parts if path.exists())
    (HERE / "RESULTS.md").write_text(head + body)


def cpu_count() -> int:
    """Processors of this machine."""
    return Path("/proc/cpuinfo").read_text().count("processor\t")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
