"""DHCP exchanges: ours against Kea and dnsmasq, on the same machine in the same minutes.

`python -m tests.benchmarks.dhcp_bench` as root; needs perfdhcp (Debian: kea-admin) and kea-dhcp4 (kea-dhcp4-server),
and races against dnsmasq (dnsmasq-base) where it is installed. The server is kept to one core and the generator to
another; servers take turns, in an order that changes each time. The table leads with the processor time that the server
takes for an exchange: unlike the knee, it hardly depends on what else the machine does, nor on the generator.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.benchmarks.dhcp.contenders import Start, dnsmasq, floor, kea, ours
from tests.benchmarks.dhcp.perfdhcp import Load, run_perfdhcp, wait_for_answer
from tests.benchmarks.dhcp.race import STEADY_RATE, Result, find_knee
from tests.benchmarks.dhcp.wire import Course, course
from tests.benchmarks.record import Check, Goal, begin, say, spread

RESERVATIONS = 10_000
LEAST_SECONDS = 5
"""Of a step. Shorter ones find other knees each time."""
KEA = "Kea, 1 thread"
GOALS: Final = {
    "processor": Goal("processor time of an exchange, each server at its knee, to that of Kea with 1 thread", 1 / 3),
    "answer": Goal(f"ms to an answer at {STEADY_RATE} exchanges/s", 2.0),
    "knee": Goal("knee, to that of Kea with 1 thread", 1.0, at_least=True),
}
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
    steady = result.carried_steady
    at_rest = f"{steady.microseconds_each:.0f} µs and {steady.delay_milliseconds:.1f} ms" if steady else "not measured"
    say(
        f"{repetition + 1} {name}: {result.microseconds_each:.0f} µs each ({at_rest} at "
        f"{STEADY_RATE}/s), knee {result.knee:.0f}/s,"
        f" overload {result.at_overload:.0f}/s"
        f" of {result.overload.offered_per_second:.0f}/s ({steps})"
    )


def table(results: dict[str, list[Result]], seconds: int, peer: str = "Kea") -> str:
    """The results as a markdown table; ratios are of medians, to the peer as it is best in that column."""
    rows = [
        "## DHCP exchanges",
        "",
        f"{RESERVATIONS:,} reservations, {seconds} s a step, "
        f"server and perfdhcp each on a core of its own{' (there is only one)' if os.cpu_count() == 1 else ''}. "
        "Median (least to most). Ratios are to Kea as it is best in that column. The least in Python is no server: "
        "it looks nothing up and answers each packet with the same bytes. "
        f"A server whose knee is below {STEADY_RATE}/s has no figures there.",
        "",
        f"| server | processor µs an exchange, at its knee | ratio | at {STEADY_RATE}/s | ratio | "
        f"ms to an answer at {STEADY_RATE}/s | knee, exchanges/s | ratio | at twice its knee, completed/s | "
        "of the exchanges offered |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    peers = [runs for name, runs in results.items() if name.startswith(peer)]
    cost = min((_median(_costs(runs)) for runs in peers), default=0.0)
    carried = [[load.microseconds_each for load in loads] for runs in peers if (loads := _steady(runs))]
    steady = min(map(_median, carried), default=0.0)
    knee = max((_median(_knees(runs)) for runs in peers), default=0.0)
    for name, runs in results.items():
        costs, knees, over = _costs(runs), _knees(runs), [run.at_overload for run in runs]
        shares = [run.overload.completed_share for run in runs]
        at_steady = ["beyond its knee", "-", "-"]
        if loads := _steady(runs):
            at_rest = [load.microseconds_each for load in loads]
            delays = spread([load.delay_milliseconds for load in loads])
            at_steady = [_spread(at_rest), _fraction(steady, _median(at_rest)), delays]
        rows.append(
            f"| {name} | {_spread(costs)} | {_fraction(cost, _median(costs))} | {' | '.join(at_steady)} | "
            f"{_spread(knees)} | {f'{_median(knees) / knee:.2f}' if knee else '-'} | {_spread(over)} "
            f"| {_median(shares):.0%} |"
        )
    return "\n".join(rows)


def check_goals(results: dict[str, list[Result]]) -> list[Check]:
    kea, checks = results[KEA], []
    for name, runs in results.items():
        if name.startswith("ours"):
            loads = _steady(runs)
            checks += [
                GOALS["processor"].check(name, map(_ratio, _costs(runs), _costs(kea))),
                GOALS["answer"].check(name, [load.delay_milliseconds for load in loads] or [math.inf]),
                GOALS["knee"].check(name, map(_ratio, _knees(runs), _knees(kea))),
            ]
    return checks


def _steady(runs: Sequence[Result]) -> list[Load]:
    """What each run measured at STEADY_RATE; nothing unless every run carried it."""
    loads = [load for run in runs if (load := run.carried_steady)]
    return loads if len(loads) == len(runs) else []


def _costs(runs: Sequence[Result]) -> list[float]:
    return [run.microseconds_each for run in runs]


def _knees(runs: Sequence[Result]) -> list[float]:
    return [run.knee for run in runs]


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs else math.inf


def _fraction(peer: float, own: float) -> str:
    return f"1 / {peer / own:.2f}" if peer and own else "-"


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else 0.0


def _spread(values: Sequence[float]) -> str:
    return f"{_median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the table; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kea", default=shutil.which("kea-dhcp4", path=PATH), help="path of kea-dhcp4")
    parser.add_argument("--dnsmasq", default=shutil.which("dnsmasq", path=PATH), help="path of dnsmasq")
    parser.add_argument("--perfdhcp", default=shutil.which("perfdhcp", path=PATH), help="path of perfdhcp")
    parser.add_argument("--workers", type=int, nargs="+", default=[1])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=LEAST_SECONDS, help=f"of each step, at least {LEAST_SECONDS}")
    options, _ = parser.parse_known_args(arguments)
    if options.seconds < LEAST_SECONDS:
        parser.error(f"a step of {options.seconds} s is too short: give --seconds {LEAST_SECONDS} or more")
    run = begin("dhcp")
    if os.geteuid() != 0 or options.perfdhcp is None or options.kea is None:
        sys.exit(
            "the DHCP benchmark needs root, for network namespaces, perfdhcp and Kea; "
            "run `apt-get install kea-admin kea-dhcp4-server`"
        )
    os.nice(-10)  # generator and servers alike, so that whatever else runs here disturbs less
    contenders: dict[str, Start] = {
        f"ours, {count} worker{'s' if count > 1 else ''}": ours(count) for count in options.workers
    }
    contenders[KEA] = kea(options.kea, 1)
    contenders["Kea, 2 threads"] = kea(options.kea, 2)
    contenders["the least in Python: receive, copy, send"] = floor
    if options.dnsmasq:
        contenders["dnsmasq"] = dnsmasq(options.dnsmasq)
    results = run_race(contenders, options.perfdhcp, options.repetitions, options.seconds)
    return run.finish(table(results, options.seconds), check_goals(results), options.repetitions)


if __name__ == "__main__":
    sys.exit(main())
