"""What came of each fault, as lines of JSON: an interrupted run goes on where it ended."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.mutants.fault import Fault

FOUND: Final = "found"
TIMED_OUT: Final = "time-out"
SURVIVED: Final = "survived"
EQUIVALENT: Final = "equivalent"
NOT_APPLICABLE: Final = "not applicable"
ERROR: Final = "error"
GOOD: Final = frozenset({FOUND, TIMED_OUT, EQUIVALENT})
_FINAL: Final = GOOD | {SURVIVED}
"""What another run on the same tree would only repeat; what kept a fault from being tried may be mended by then."""


@dataclass(frozen=True)
class Result:
    """`by` is the test that found the fault, or what kept it from being tried."""

    outcome: str
    seconds: float = 0.0
    by: str = ""
    missing: tuple[str, ...] = ()


class Results:
    """The results of one tree, in a file. A fault that was changed since has none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, Result] = {}
        for line in path.read_text().splitlines() if path.exists() else ():
            kept = json.loads(line)
            if kept["result"]["outcome"] in _FINAL:
                self._known[_key(kept["fault"])] = Result(
                    **kept["result"] | {"missing": tuple(kept["result"]["missing"])}
                )

    def of(self, fault: Fault) -> Result | None:
        return self._known.get(_key(asdict(fault)))

    def forget(self) -> None:
        """All results of this tree."""
        self.path.unlink(missing_ok=True)
        self._known.clear()

    def add(self, fault: Fault, result: Result) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps({"fault": asdict(fault), "result": asdict(result)}) + "\n")


def _key(fault: dict[str, Any]) -> str:
    return json.dumps(fault)
