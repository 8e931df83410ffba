"""Which GPUs are not as they should be, in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from provisioner.api.nodes.facts import GpuFacts
from provisioner.health.checks.finding import Finding, wrong


@dataclass(frozen=True, kw_only=True)
class GpuFault:
    """Something that may be wrong with GPUs. has: whether it is with one. say: what is said of that one."""

    reason: str
    has: Callable[[GpuFacts], bool]
    say: Callable[[GpuFacts], str]
    expected: str
    remedy: str


def first_fault(name: str, gpus: Sequence[GpuFacts], faults: Iterable[GpuFault]) -> Finding | None:
    """The first of `faults` that any of these GPUs has, with those that have it, each by its address."""
    for fault in faults:
        found = [each for each in gpus if fault.has(each)]
        if found:
            told = "; ".join(
                f"GPU {each.pci_address or each.uuid or 'unknown'} {fault.say(each)}" for each in found[:4]
            )
            more = f"; and {len(found) - 4} more" if len(found) > 4 else ""
            return wrong(name, fault.reason, observed=told + more, expected=fault.expected, remedy=fault.remedy)
    return None
