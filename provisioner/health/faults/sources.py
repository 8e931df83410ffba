"""Everything that reports faults of a server. Pure. A new source is a function and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from provisioner.api.nodes.facts import ObservedFault
from provisioner.health.faults.agent import agent_faults, gpu_faults, service_faults, xid_faults
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

SOURCES_IN_USE: Final[tuple[Source, ...]] = (kubelet_faults, service_faults)
"""What they find is usual while a server boots or is rebooted: it counts only while the server is in use."""


def observe(node: NodeView, *, in_use: bool) -> tuple[ObservedFault, ...]:
    """All faults that are reported of the boot that runs. in_use: whether it is expected to work as a node."""
    sources = (*SOURCES, *SOURCES_IN_USE) if in_use else SOURCES
    return tuple(fault for source in sources for fault in source(node))
