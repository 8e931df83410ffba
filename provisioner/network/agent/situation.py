"""What the agent has found out before it decides: which interfaces there are, how domains are kept apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from provisioner.network.agent.boot.plane import BootServices
from provisioner.network.agent.model.naming import namespace_name
from provisioner.network.agent.model.state import HOME, Place

Backend = Literal["vrf", "netns"]
VXLAN_OVERHEAD_BYTES = 50


@dataclass(frozen=True)
class Underlay:
    """The interface that carries the VXLAN packets; of the loopback no MTU is known. `exists`: whether there is one of
    that name; `has_address`: whether the DPU has its own."""

    device: str | None
    mtu_bytes: int | None
    exists: bool = True
    has_address: bool = True


@dataclass(frozen=True, kw_only=True)
class DpuInputs:
    """`interfaces`: of each function the name of its representor. `largest_mtus`: of those that exist.
    `boot`: what a host that boots through the DPU asks for; None where the agent was not told."""

    backend: Backend
    owner: str
    interfaces: Mapping[str, str]
    largest_mtus: Mapping[str, int]
    underlay: Underlay
    has_conntrack: bool
    namespaces_are_shared: bool = True
    boot: BootServices | None = None

    def place_of(self, vni: int) -> Place:
        return HOME if self.backend == "vrf" else namespace_name(vni, self.owner)
