"""Everything that reports faults of a server. Pure. A new source is a function and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from provisioner.api.nodes.facts import ObservedFault
from provisioner.health.faults.agent import agent_faults, driver_faults, gpu_faults, service_faults, xid_faults
from provisioner.health.faults.conditions import kubelet_faults, tool_faults
from provisioner.rules.nodes import NodeView

Source = Callable[[NodeView], tuple[ObservedFault, ...]]

SOURCES: Final[tuple[Source, ...]] = (
    xid_faults,
    gpu_faults,
    agent_faults,
    tool_faults,
)
"""What they find is a fault at any time."""

PATIENT_SOURCES: Final[tuple[Source, ...]] = (kubelet_faults, service_faults, driver_faults)
"""What they find is usual while a server boots or is rebooted, and for a moment at any time: it counts only of a server
that is in use, and once it has lasted."""


def observe(node: NodeView, sources: tuple[Source, ...] = SOURCES) -> tuple[ObservedFault, ...]:
    """All faults that these sources report of the boot that runs."""
    return tuple(fault for source in sources for fault in source(node))
