"""Which GPUs are not as they should be, in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from provisioner.api.nodes.facts import GpuFacts
from provisioner.health.checks.finding import Finding, wrong


def some(
    name: str,
    reason: str,
    gpus: Sequence[GpuFacts],
    say: Callable[[GpuFacts], str],
    *,
    expected: str,
    remedy: str,
) -> Finding | None:
    """What is wrong with these GPUs, each by its address; None where there are none."""
    if not gpus:
        return None
    told = "; ".join(f"GPU {each.pci_address or each.uuid or 'unknown'} {say(each)}" for each in gpus[:4])
    more = f"; and {len(gpus) - 4} more" if len(gpus) > 4 else ""
    return wrong(name, reason, observed=told + more, expected=expected, remedy=remedy)
