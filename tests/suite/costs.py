"""Prints what a run of the tests cost.

    python -m tests.suite.costs FOLDER [BEFORE]

FOLDER: what `make test` names in its first line. BEFORE: an earlier run's folder, for a table of both.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SHOWN: Final = 30


@dataclass(frozen=True)
class Cost:
    wall_seconds: float = 0.0
    processor_seconds: float = 0.0
    tests: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.wall_seconds + other.wall_seconds,
            self.processor_seconds + other.processor_seconds,
            self.tests + other.tests,
        )


@dataclass(frozen=True)
class Costs:
    """What one run cost: of each test file, of each shared fixture (start-up alone), and of collecting the tests."""

    files: Mapping[str, Cost]
    fixtures: Mapping[str, Cost]
    collection: Cost
    counts: str

    @property
    def total(self) -> Cost:
        return sum([*self.files.values(), *self.fixtures.values(), self.collection], Cost())


def read_costs(folder: Path) -> Costs:
    """Add up what the processes of a run recorded. Raises: FileNotFoundError if nobody recorded anything."""
    files: dict[str, Cost] = defaultdict(Cost)
    fixtures: dict[str, Cost] = defaultdict(Cost)
    collection, counts = Cost(), set()
    records = sorted(folder.glob("*.jsonl"))
    if not records:
        raise FileNotFoundError(f"{folder} has no record of a run")
    for record in records:
        for entry in map(json.loads, record.read_text().splitlines()):
            cost = Cost(entry["wall_seconds"], entry["processor_seconds"], int(entry["kind"] == "test"))
            match entry["kind"]:
                case "test":
                    files[entry["file"]] += cost
                case "fixture":
                    fixtures[entry["name"]] += cost
                case "collection":
                    collection += cost
                case "meter":
                    counts.add(entry["name"])
    return Costs(files, fixtures, collection, ", ".join(sorted(counts)))


def render(costs: Costs) -> Iterable[str]:
    """The summary that ends `make test`."""
    total = costs.total
    yield f"processor seconds: {costs.counts}"
    yield f"{'':<70} {'tests':>6} {'wall s':>8} {'processor s':>12}"
    yield _line("all test files", sum(costs.files.values(), Cost()))
    yield _line("start-up of shared fixtures", sum(costs.fixtures.values(), Cost()))
    yield _line("collection, all processes", costs.collection)
    yield _line("sum", total)
    yield f"the {SHOWN} most expensive test files and fixtures:"
    named = {**costs.files, **{f"fixture {name}": cost for name, cost in costs.fixtures.items()}}
    for name, cost in sorted(named.items(), key=lambda each: -each[1].processor_seconds)[:SHOWN]:
        yield _line(name, cost)


def compare(before: Costs, after: Costs) -> Iterable[str]:
    """A Markdown table of what cost most before or costs most after."""
    yield "| file or fixture | wall s before | after | processor s before | after |"
    yield "|---|---|---|---|---|"
    old, new = ({**each.files, **{f"fixture {n}": c for n, c in each.fixtures.items()}} for each in (before, after))
    most = sorted(
        old.keys() | new.keys(),
        key=lambda name: -max(old.get(name, Cost()).processor_seconds, new.get(name, Cost()).processor_seconds),
    )
    rows: list[tuple[str, Any, Any]] = [(n, old.get(n, Cost()), new.get(n, Cost())) for n in most[:SHOWN]]
    rows += [("collection", before.collection, after.collection), ("sum", before.total, after.total)]
    for name, was, now in rows:
        yield (
            f"| {name} | {was.wall_seconds:.0f} | {now.wall_seconds:.0f} "
            f"| {was.processor_seconds:.0f} | {now.processor_seconds:.0f} |"
        )


def _line(name: str, cost: Cost) -> str:
    tests = str(cost.tests or "")
    return f"{name[-70:]:<70} {tests:>6} {cost.wall_seconds:>8.1f} {cost.processor_seconds:>12.1f}"


def main(arguments: list[str]) -> int:
    costs = [read_costs(Path(folder)) for folder in arguments]
    for line in render(costs[0]) if len(costs) == 1 else compare(costs[1], costs[0]):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
