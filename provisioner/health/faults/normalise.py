"""From what a machine or another tool says to a fault that can be put on record. Pure.

What does not fit is made to fit, and is not left out: a machine must not hide a fault by spelling it wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Final, get_args

from provisioner.api.nodes.facts import ObservedFault
from provisioner.api.servers.faults import (
    CODE_PATTERN,
    MAX_COUNT,
    MAX_DEVICE,
    MAX_EVIDENCE,
    SEVERITIES,
    FaultComponent,
    FaultSource,
)
from provisioner.health.checks.finding import printable

UNKNOWN_CODE: Final = "Unknown"
SOURCES_OF_AGENT: Final = frozenset({"KernelLog", "NVML", "Counters", "Node"})
"""What the agent may say of itself: conditions of other tools are read where those set them."""

_SOURCES: Final = frozenset(get_args(FaultSource))
_COMPONENTS: Final = frozenset(get_args(FaultComponent))
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_.:@#/-]+")


def normalise(fault: ObservedFault, sources: Collection[str] = _SOURCES) -> ObservedFault:
    """`fault` within the bounds of a FaultRecord. sources: those that whoever said it may name; others become Node.

    A severity that is not known counts as Degraded, a component as System, and a code as Unknown, with what was said
    as evidence.
    """
    code, evidence = _text(fault.code), _text(fault.evidence)
    if not re.fullmatch(CODE_PATTERN, code):
        code, evidence = UNKNOWN_CODE, f"{code}: {evidence}"
    count = fault.count
    return replace(
        fault,
        source=fault.source if _is_in(fault.source, sources) else "Node",
        component=fault.component if _is_in(fault.component, _COMPONENTS) else "System",
        device=_NO_NAME.sub("", _text(fault.device))[:MAX_DEVICE],
        code=code,
        severity=fault.severity if _is_in(fault.severity, SEVERITIES) else "Degraded",
        count=None if count is None else min(max(count, 1), MAX_COUNT),
        evidence=printable(evidence, MAX_EVIDENCE),
        time=None,
    )


def unique(faults: Iterable[ObservedFault]) -> dict[tuple[str, str, str, str], ObservedFault]:
    """By source, component, device and code, in their order; of several the worst severity and the highest count."""
    found: dict[tuple[str, str, str, str], ObservedFault] = {}
    for fault in faults:
        key = fault.source, fault.component, fault.device, fault.code
        before = found.get(key)
        if before is None:
            found[key] = fault
            continue
        worse = rank(fault.severity) > rank(before.severity)
        counts = [each.count for each in (before, fault) if each.count is not None]
        found[key] = replace(fault if worse else before, count=max(counts, default=None))
    return found


def rank(severity: str) -> int:
    """0 for Info to 2 for Critical; what a newer release calls it counts as the worst."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)


def _text(said: Any) -> str:
    return said if isinstance(said, str) else ""


def _is_in(said: Any, words: Collection[str]) -> bool:
    return isinstance(said, str) and said in words
