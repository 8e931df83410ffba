"""`make attacks`: runs every test of the catalogue; prints attack, refused by, test and result, section by section."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import pytest

from tests.attacks.catalogue.rows import Attack, read_rows
from tests.attacks.taken_away.plugin import without_parameters

VM = "tests/journey/"
"""A rack that boots, whose logs, processes and objects are then searched for secrets: with `--vm` alone."""
_NOT_RUN = "not run"
NOBODY = "no test does yet"


class Results:
    """What came of each test, all its parameters taken together: the worst."""

    def __init__(self) -> None:
        self._outcomes: defaultdict[str, set[str]] = defaultdict(set)

    def add(self, node_id: str, outcome: str) -> None:
        self._outcomes[without_parameters(node_id)].add(outcome)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called by pytest."""
        if report.when == "call" or report.outcome != "passed":
            self.add(report.nodeid, report.outcome)

    def of(self, tests: Sequence[str]) -> str:
        """failed, skipped, passed or not run. A test without a name is a whole module."""
        found: set[str] = set()
        for test in tests:
            mine = [outcomes for known, outcomes in self._outcomes.items() if known == test or
                    ("::" not in test and known.startswith(f"{test}::"))]  # fmt: skip
            found |= set().union(*mine) if mine else {_NOT_RUN}
        return next((each for each in ("failed", _NOT_RUN, "skipped", "passed") if each in found), _NOT_RUN)

    def has_any(self, row: Attack) -> bool:
        """Whether anything was run that has to do with the attack."""
        return self.of(row.tests) != _NOT_RUN or self.of_twin(row) not in ("", _NOT_RUN)

    def of_attack(self, row: Attack) -> str:
        """In words: refused, or what kept that from being seen."""
        passed = "as the document says" if row.is_open else "refused"
        return {"passed": passed, "failed": "FAILED"}.get(outcome := self.of(row.tests), outcome)

    def of_twin(self, row: Attack) -> str:
        """Of the attack without the defence: succeeds; empty if no test takes it away."""
        if row.without is None:
            return ""
        twin = (row.without.test,) if row.without.test is not None else row.tests
        return {"passed": "succeeds", "failed": "FAILED"}.get(outcome := self.of(twin), outcome)


def render_table(rows: Sequence[Attack], results: Results) -> str:
    """The attacks by who makes them."""
    lines = []
    for who, attacks in groupby(rows, key=lambda row: row.who):
        lines += ["", who, "=" * len(who)]
        for row in attacks:
            lines.append(f"- {row.attack}")
            lines.append(f"    {row.refused_by}: {results.of_attack(row)}")
            lines += [f"    {test}" for test in row.tests]
            if row.without is not None:
                lines.append(f"    without it ({row.without.taken_away}): {results.of_twin(row)}")
                lines += [f"      {row.without.test}"] if row.without.test is not None else []
            else:
                lines.append(f"    not taken away: {row.not_taken_away or NOBODY}")
    by_result: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        by_result[results.of_attack(row)] += 1
    shown = sum(results.of_twin(row) == "succeeds" for row in rows)
    reasons = sum(row.not_taken_away is not None for row in rows)
    silent = sum(row.without is None and row.not_taken_away is None and not row.is_open for row in rows)
    counts = ", ".join(f"{count} {result}" for result, count in sorted(by_result.items()))
    twins = f"{shown} succeed where the defence is taken away; of {reasons} it is not, for the reason that is named"
    return "\n".join([*lines, "", f"{len(rows)} attacks: {counts}", f"{twins}; of {silent} no test does so yet"])


def main(words: Sequence[str]) -> int:
    """Exit status: that of pytest."""
    rows = read_rows()
    tests = {test for row in rows for test in row.tests}
    twins = {row.without.test for row in rows if row.without is not None and row.without.test is not None}
    tests |= {twin for twin in twins if "[" not in twin}  # the others are runs of the attack's own test
    chosen = [word for word in words if word != "--vm"]
    every = sorted(
        {*(test for test in tests if "--vm" in words or not test.startswith(VM)), "tests/attacks", "tests/fuzz"}
    )
    results = Results()
    status = pytest.main(["-q", *(chosen or every)], plugins=[results])
    print(render_table([row for row in rows if not chosen or results.has_any(row)], results))
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
