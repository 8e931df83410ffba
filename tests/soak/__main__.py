"""`make soak`: a virtual rack under random kills, hung backends, dripping sources and hostile packets.

    python -m tests.soak [--minutes 10] [--seed N] [--servers BIOS,UEFI]

Boots a lab of its own, does for so long what the plan of the seed says, takes all of it back, and waits until the fleet
is as if nothing had happened (tests/soak/remains.py). Exit status 1, with what is wrong, if it does not become so, or
does not remain so for a minute. It sends nothing out of its own network namespaces.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from lab.binaries.obtain import find_binaries
from lab.cli.parts import demo_state
from lab.demo.state import DemoState
from tests.journey.virtual_rack import VirtualRack, lab_command
from tests.soak.plan import Trouble, plan
from tests.soak.rack_in_trouble import RackInTrouble
from tests.soak.remains import what_is_wrong
from tests.tools import lab_tools

BOOT_SECONDS: Final = 1500
MEND_SECONDS: Final = 3000.0
"""A boot that was given up comes after a pause that grows to 30 minutes."""
STEADY_SECONDS: Final = 60.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--servers", default="BIOS,UEFI", help="firmware of each server")
    options = parser.parse_args(arguments)
    name = f"soak{os.getpid()}"
    state = demo_state(name)
    names = [f"r01-u{number:02d}" for number in range(1, options.servers.count(",") + 2)]
    print(f"soak: {options.minutes:g} minutes, {len(names)} servers, --seed {options.seed}", flush=True)
    try:
        subprocess.run(
            lab_command("up", "--name", name, f"--servers={options.servers}", f"--timeout={BOOT_SECONDS}"),
            check=True,
            stdin=subprocess.DEVNULL,
        )
        binaries = find_binaries(assets=None, cache=state.cache, tools_root=lab_tools().root, report=print)
        rack = RackInTrouble(VirtualRack(state, binaries.kubectl), names, options.seed)
        wrong = ["it broke off"]
        try:
            wrong = soak(rack, state, plan(options.seed, options.minutes * 60, names), options.minutes * 60)
        finally:
            rack.cleanup()
            if wrong:
                print(f"soak: failed with --seed {options.seed}; logs are in {_keep_logs(state)}")
                print("\n".join(f"  {each}" for each in wrong), flush=True)
        return 1 if wrong else 0
    finally:
        subprocess.run(lab_command("down", "--name", name), check=False)


def soak(rack: RackInTrouble, state: DemoState, troubles: list[Trouble], seconds: float) -> list[str]:
    """What is wrong in the end."""
    rack.start_hostile(seconds)
    memory: Counter[str] = Counter()
    began = time.monotonic()
    for trouble in play(rack, troubles, began, lambda: _note_memory(state, memory)):
        print(trouble, flush=True)
    while time.monotonic() < began + seconds:
        time.sleep(1)
    sent = rack.stop_hostile()
    over = time.monotonic()
    print(f"soak: troubles are over after {over - began:.0f} s", flush=True)
    steady_since, wrong, clean_after = None, ["nobody has looked"], 0.0
    while time.monotonic() < over + MEND_SECONDS:
        _note_memory(state, memory)
        found = what_is_wrong(rack.remains(), rack.servers)
        if found != wrong:
            words = "; ".join(each if len(each) <= 90 else f"{each[:89]}…" for each in found)
            print(f"{time.monotonic() - over:5.0f} s  {words or 'nothing is wrong'}", flush=True)
        wrong = found
        if wrong:
            steady_since = None
        elif steady_since is None:
            steady_since = time.monotonic()
            clean_after = steady_since - over
        elif time.monotonic() - steady_since > STEADY_SECONDS:
            break
        time.sleep(3)
    _tell(rack, state, sent, memory, clean_after)
    return wrong


def play(
    rack: RackInTrouble, troubles: list[Trouble], began: float, meanwhile: Callable[[], None]
) -> Iterator[Trouble]:
    """Begin and end the troubles in their time; yields each as it begins. All are taken back, whatever happens."""
    serial = itertools.count()
    due: list[tuple[float, int, Trouble | None, Callable[[], object]]] = [
        (each.at, next(serial), each, lambda: None) for each in troubles
    ]
    heapq.heapify(due)
    try:
        while due:
            at, _, trouble, take_back = heapq.heappop(due)
            while (left := began + at - time.monotonic()) > 0:
                meanwhile()
                time.sleep(min(left, 2.0))
            if trouble is None:
                take_back()
                continue
            yield trouble
            back = rack.begin(trouble)
            heapq.heappush(due, (max(time.monotonic() - began, at) + trouble.lasts, next(serial), None, back))
    finally:
        for _, _, trouble, take_back in due:
            if trouble is None:
                take_back()


def _note_memory(state: DemoState, memory: Counter[str]) -> None:
    """The most that a service has held, in MiB."""
    for name, pid in (state.read().get("pids") or {}).items():
        if name in ("boot", "controller"):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            held = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
            memory[name] = max(memory[name], *(int(kibibytes) >> 10 for kibibytes in held), 0)


def _tell(
    rack: RackInTrouble, state: DemoState, sent: dict[str, int], memory: Counter[str], clean_after: float
) -> None:
    by_kind: Counter[str] = Counter()
    for words, count in rack.did.items():
        by_kind[words.split(" ")[0]] += count
    print("done: " + ", ".join(f"{count} {kind}" for kind, count in sorted(by_kind.items())))
    print("sent by the neighbour: " + ", ".join(f"{count} {kind}" for kind, count in sorted(sent.items())))
    print("most memory: " + ", ".join(f"{name} {mebibytes} MiB" for name, mebibytes in sorted(memory.items())))
    for log in sorted((state.directory / "logs").glob("*.log")):
        print(f"tracebacks in {log.name}: {log.read_text(errors='replace').count('Traceback (most recent')}")
    print(f"clean {clean_after:.0f} s after the last trouble")


def _keep_logs(state: DemoState) -> Path:
    kept = Path(tempfile.mkdtemp(prefix="soak-"))
    for log in state.directory.rglob("*.log"):
        shutil.copy(log, kept / str(log.relative_to(state.directory)).replace("/", "-"))
    return kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
