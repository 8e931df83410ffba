"""`make fuzz MINUTES=… [SEED=…] [FUZZ=atheris]`: every reader of what strangers send, for its share of the time."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.play import Crash, attempts, play
from tests.fuzz.targets import TARGETS, Target


def main(words: list[str]) -> int:
    """Exit status: 0; 1 if a reader crashed or hung. What it met is kept in tests/fuzz/cases."""
    options = argparse.ArgumentParser(prog="make fuzz", description=__doc__)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--seed", type=int, default=int(time.time()))
    options.add_argument("--engine", choices=("mutation", "atheris"), default="mutation")
    options.add_argument("targets", nargs="*", help="all, if none is named")
    given = options.parse_args(words)
    chosen = [target for target in TARGETS if not given.targets or target.name in given.targets]
    if missing := set(given.targets) - {target.name for target in TARGETS}:
        options.error(f"no target {', '.join(sorted(missing))}; there are {', '.join(each.name for each in TARGETS)}")
    seconds = given.minutes * 60 / len(chosen)
    print(f"{len(chosen)} targets, {seconds:.0f} s each, by {given.engine}, seed {given.seed}", flush=True)
    by = by_atheris if given.engine == "atheris" else by_mutation
    crashes = [crash for target in chosen if (crash := by(target, given.seed, seconds)) is not None]
    for crash in crashes:
        print(f"\n{crash.target}: {crash.words}\nkept as {crash.keep()}: `make test` plays it from now on")
    return 1 if crashes else 0


def by_mutation(target: Target, seed: int, seconds: float) -> Crash | None:
    """Changes of good input, without a look at what they reach."""
    tried = 0
    for data in attempts(target, seed, None, time.monotonic() + seconds):
        if (crash := play(target, data)) is not None:
            return crash
        tried += 1
    print(f"{target.name:24}{tried:>10} inputs", flush=True)
    return None


def by_atheris(target: Target, seed: int, seconds: float) -> Crash | None:
    """By what it reaches: libFuzzer, in a process of its own, as it never returns."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        corpus, found = Path(folder, "corpus"), Path(folder, "found")
        for each in (corpus, found):
            each.mkdir()
        for number, data in enumerate(target.seeds()):
            (corpus / f"seed-{number}").write_bytes(data)
        limits = (f"-max_total_time={max(1, int(seconds))}", f"-seed={seed % 2**32}", f"-max_len={target.most_bytes}")
        command = [sys.executable, "-m", "tests.fuzz.by_atheris", target.name, str(corpus), *limits]
        ran = subprocess.run(
            [*command, f"-artifact_prefix={found}/", "-timeout=5", "-verbosity=1"],
            capture_output=True, text=True, errors="replace", check=False, env=os.environ,
        )  # fmt: skip
        last = [line for line in ran.stderr.splitlines() if line.startswith("Done")]
        inputs = sorted(found.iterdir())
        if inputs:
            return Crash(target.name, inputs[0].read_bytes(), ran.stdout[-3000:] + ran.stderr[-1000:])
        if ran.returncode != 0:
            raise SystemExit(f"{target.name} was not tried: {ran.stderr[-2000:]}")
        print(f"{target.name:24}{last[-1] if last else 'ended'}", flush=True)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
