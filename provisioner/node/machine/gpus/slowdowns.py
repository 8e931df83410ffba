"""Which slowdowns of a GPU's clocks are worth telling: they come and go within seconds, and facts may not flap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FORGOTTEN_SECONDS = 600.0


class SteadySlowdowns:
    """A slowdown counts once two readings in a row saw it, and until it was not seen for 10 minutes."""

    def __init__(self) -> None:
        self._before: set[tuple[str, str]] = set()
        self._told: dict[tuple[str, str], float] = {}

    def steady(self, reading: Mapping[str, Any], now: float) -> dict[str, Any]:
        """`reading`, where each GPU's `slowdowns` are those that count; those of this moment are `slowdownsNow`."""
        gpus = reading.get("gpus", ())
        seen = {(_name(gpu), reason) for gpu in gpus for reason in gpu.get("slowdowns", ())}
        for each in seen:
            if each in self._before or each in self._told:
                self._told[each] = now
        self._before = seen
        self._told = {each: last for each, last in self._told.items() if now - last < FORGOTTEN_SECONDS}
        steady = []
        for gpu in gpus:
            counting = [reason for name, reason in sorted(self._told) if name == _name(gpu)]
            steady.append({**gpu, "slowdowns": counting, "slowdownsNow": gpu.get("slowdowns", [])})
        return {**reading, "gpus": steady}


def _name(gpu: Mapping[str, Any]) -> str:
    return str(gpu.get("uuid", gpu.get("index")))
