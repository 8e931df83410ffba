"""DHCP exchanges a second: ours against Kea and dnsmasq, on the same machine in the same minutes.

`python -m tests.benchmarks.dhcp_bench` as root; needs perfdhcp (Debian: kea-admin), and races against kea-dhcp4
(kea-dhcp4-server) and dnsmasq (dnsmasq-base) where they are installed. Servers take turns, in an order that changes
each time; the table gives medians and the spread from least to most. The generator shares the processors with the
server, and takes more of them than ours does: the knees are those of both together. What a server alone costs is its
processor time for one exchange.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.dhcp.contenders import Start, dnsmasq, kea, ours
from tests.benchmarks.dhcp.perfdhcp import run_perfdhcp, wait_for_answer
from tests.benchmarks.dhcp.race import Result, find_knee
from tests.benchmarks.dhcp.wire import Course, course

RESERVATIONS = 10_000
RESULTS = Path(__file__).parent / "results" / "dhcp.md"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FIRST_RATES = {"dnsmasq": 500}


def run_race(contenders: dict[str, Start], perfdhcp: str, repetitions: int, seconds: int) -> dict[str, list[Result]]:
    """Every contender `repetitions` times, in rotating order."""
    results: dict[str, list[Result]] = {name: [] for name in contenders}
    names = list(contenders)
    with course() as where:
        for repetition in range(repetitions):
            for name in names[repetition % len(names) :] + names[: repetition % len(names)]:
                results[name].append(_run(where, name, contenders[name], perfdhcp, seconds))
                _report_progress(repetition, name, results[name][-1])
    return results


def _run(where: Course, name: str, start: Start, perfdhcp: str, seconds: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="dhcp-bench-") as folder, start(where, RESERVATIONS, Path(folder)):
        wait_for_answer(where, perfdhcp)
        return find_knee(
            lambda rate: run_perfdhcp(where, perfdhcp, rate, seconds, RESERVATIONS), FIRST_RATES.get(name, 2000)
        )


def _report_progress(repetition: int, name: str, result: Result) -> None:
    steps = " ".join(f"{step.wanted_per_second:.0f}:{step.completed_share:.0%}" for step in result.steps)
    print(
        f"{repetition + 1} {name}: knee {result.knee:.0f}/s, {result.microseconds_each:.0f} µs each,"
        f" overload {result.at_overload:.0f}/s"
        f" of {result.overload.offered_per_second:.0f}/s ({steps})",
        file=sys.stderr,
        flush=True,
    )


def table(results: dict[str, list[Result]], reference: str = "Kea") -> str:
    """The results as a markdown table; ratios are of medians, to the reference."""
    rows = [
        "| server | knee, exchanges/s | ratio | at twice its knee, completed/s | share of its knee | "
        "of the exchanges offered | processor µs an exchange | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    base = _median([result.knee for result in results[reference]]) if reference in results else 0.0
    base_cost = _median([result.microseconds_each for result in results[reference]]) if reference in results else 0.0
    for name, runs in results.items():
        knees = [result.knee for result in runs]
        over = [result.at_overload for result in runs]
        kept = [result.at_overload / result.knee for result in runs if result.knee]
        shares = [result.overload.completed_share for result in runs]
        costs = [result.microseconds_each for result in runs]
        ratio = f"{_median(knees) / base:.2f} × {reference}" if base else "-"
        cost_ratio = f"1 / {base_cost / _median(costs):.2f} × {reference}" if base_cost and _median(costs) else "-"
        rows.append(
            f"| {name} | {_spread(knees)} | {ratio} | {_spread(over)} | {_median(kept):.0%} | {_median(shares):.0%} | "
            f"{_spread(costs)} | {cost_ratio} |"
        )
    return "\n".join(rows) + "\n"


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _spread(values: Sequence[float]) -> str:
    return f"{_median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kea", default=shutil.which("kea-dhcp4", path=PATH), help="path of kea-dhcp4")
    parser.add_argument("--dnsmasq", default=shutil.which("dnsmasq", path=PATH), help="path of dnsmasq")
    parser.add_argument("--perfdhcp", default=shutil.which("perfdhcp", path=PATH), help="path of perfdhcp")
    parser.add_argument("--workers", type=int, nargs="+", default=sorted({1, min(4, os.cpu_count() or 1)}))
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2, help="of each step")
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the table is written")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or arguments.perfdhcp is None:
        sys.exit("the DHCP benchmark needs root, for network namespaces, and perfdhcp; run `apt-get install kea-admin`")
    os.nice(-10)  # generator and servers alike, so that whatever else runs here disturbs less
    busy = os.getloadavg()[2]
    contenders: dict[str, Start] = {
        f"ours, {count} worker{'s' if count > 1 else ''}": ours(count) for count in arguments.workers
    }
    if arguments.kea:
        contenders["Kea"] = kea(arguments.kea)
    if arguments.dnsmasq:
        contenders["dnsmasq"] = dnsmasq(arguments.dnsmasq)
    results = run_race(contenders, arguments.perfdhcp, arguments.repetitions, arguments.seconds)
    text = (
        f"{RESERVATIONS:,} reservations, {arguments.repetitions} repetitions of {arguments.seconds} s a step, "
        f"{os.cpu_count()} processors shared with perfdhcp, Linux {platform.release().split('-')[0]}. "
        f"Median (least to most). Load average of the quarter of an hour before: {busy:.1f}.\n\n" + table(results)
    )
    print(text)
    arguments.output.write_text(f"## DHCP exchanges\n\n{text}")


if __name__ == "__main__":
    main()
