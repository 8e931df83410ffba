"""How bad a vulnerability is: the base score of a CVSS 3 vector. Source: FIRST, CVSS v3.1 specification, chapter 7."""

from __future__ import annotations

import math
from typing import Final

_WEIGHTS: Final = {
    "AV": {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2},
    "AC": {"L": 0.77, "H": 0.44},
    "UI": {"N": 0.85, "R": 0.62},
    "C": {"H": 0.56, "L": 0.22, "N": 0.0},
    "I": {"H": 0.56, "L": 0.22, "N": 0.0},
    "A": {"H": 0.56, "L": 0.22, "N": 0.0},
}
_PRIVILEGES: Final = {"U": {"N": 0.85, "L": 0.62, "H": 0.27}, "C": {"N": 0.85, "L": 0.68, "H": 0.5}}
_PREFIXES: Final = ("CVSS:3.0/", "CVSS:3.1/")
_WORDS: Final = {"negligible": 0.0, "low": 3.9, "medium": 6.9, "high": 8.9, "critical": 10.0}


def base_score(vector: str) -> float | None:
    """0.0 to 10.0; None if it is no whole vector of CVSS 3, or a word that distributions use (`high`)."""
    if vector.lower() in _WORDS:
        return _WORDS[vector.lower()]
    if not vector.startswith(_PREFIXES):
        return None
    metrics = dict(part.split(":", 1) for part in vector.split("/")[1:] if ":" in part)
    scope = metrics.get("S", "")
    try:
        weight = {name: weights[metrics[name]] for name, weights in _WEIGHTS.items()}
        privileges = _PRIVILEGES[scope][metrics["PR"]]
    except KeyError:
        return None
    base = 1 - (1 - weight["C"]) * (1 - weight["I"]) * (1 - weight["A"])
    impact = 6.42 * base if scope == "U" else 7.52 * (base - 0.029) - 3.25 * (base - 0.02) ** 15
    if impact <= 0:
        return 0.0
    exploitability = 8.22 * weight["AV"] * weight["AC"] * privileges * weight["UI"]
    return _rounded_up(min((1.0 if scope == "U" else 1.08) * (impact + exploitability), 10.0))


def _rounded_up(score: float) -> float:
    """To one decimal, up; in whole numbers, as the specification's appendix A does it."""
    whole = round(score * 100_000)
    return whole / 100_000 if whole % 10_000 == 0 else (math.floor(whole / 10_000) + 1) / 10
