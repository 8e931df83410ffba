"""`make bench`: runs the benchmarks one after the other and puts their tables into RESULTS.md.

    python -m tests.benchmarks [NAME…] [-- ARGUMENT…]

Without a name all of them run; `tables` runs none and writes RESULTS.md again. What follows `--` goes to each (see
their --help). Exit status: how many failed or missed a goal.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Final

from tests.benchmarks.record import HERE, MAX_LOAD, RESULTS, git

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
    "credentials",
)
QUIET_LIMIT_SECONDS: Final = 600
_COMMIT: Final = re.compile(r"\bcommit ([0-9a-f]{7,40})\b")
_AGE: Final = re.compile(r"\n\*\*Age:\*\* .*\n")


def main(arguments: list[str]) -> int:
    """Run what was asked for; returns how many benchmarks failed."""
    split = arguments.index("--") if "--" in arguments else len(arguments)
    names, passed_on = arguments[:split] or list(NAMES), arguments[split + 1 :]
    if unknown := set(names) - {*NAMES, "tables"}:
        sys.exit(f"no benchmark called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}, and `tables`")
    failed = 0
    for name in names:
        if name != "tables":
            wait_until_quiet()
            command = [sys.executable, "-m", f"tests.benchmarks.{name}_bench", *passed_on]
            failed += subprocess.run(command, check=False).returncode != 0
    write_results()
    return failed


def wait_until_quiet() -> None:
    """Until the load of the benchmark before has gone. A machine that stays busy is refused by `record.begin`."""
    deadline = time.monotonic() + QUIET_LIMIT_SECONDS
    while os.environ.get("FORCE") != "1" and os.getloadavg()[0] > MAX_LOAD and time.monotonic() < deadline:
        time.sleep(5)


def write_results() -> None:
    """RESULTS.md: a head, and each benchmark's table as it was last recorded, with its age.

    Ends the program if the commit that a table names is not in this repository: nobody can measure that again.
    """
    tables = {name: RESULTS / f"{name}.md" for name in NAMES}
    parts = []
    for path in tables.values():
        if path.exists():
            path.write_text(with_age(path.name, path.read_text()))
            parts.append(path.read_text())
    never = [name for name, path in tables.items() if not path.exists()]
    head = (
        "# Figures\n\n"
        "Written by `make bench`. Each table was measured in one run, peers and bounds beside what is ours; compare\n"
        "within a table only. Ratios are medians over the repetitions named there. Under each table stand its goals\n"
        "with what was measured, the conditions of the run, and its age: what changed since then is not in it.\n\n"
    )
    head += f"Without a record: {', '.join(never)}.\n\n" if never else ""
    (HERE / "RESULTS.md").write_text(head + "\n".join(parts))


def with_age(name: str, table: str) -> str:
    """The table with a line that says how many commits it is old."""
    found = _COMMIT.findall(table)
    if not found or not git("cat-file", "-t", f"{found[-1]}^{{commit}}"):
        sys.exit(f"results/{name} names no commit of this repository: measure it again, or remove it")
    head, count = git("rev-parse", "--short=12", "HEAD"), int(git("rev-list", "--count", f"{found[-1]}..HEAD"))
    age = f"**Age:** {count:,} commits on {datetime.now(UTC):%Y-%m-%d}, at {head}."
    return f"{_AGE.sub('', table).rstrip()}\n\n{age}\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
