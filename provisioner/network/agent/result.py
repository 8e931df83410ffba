"""What came of an attempt to enforce: for the DPUNetwork's status, and as JSON for people and tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.api.machinery.codec import to_json
from provisioner.api.network.dpu_network import DPUNetworkSpec, PortStatus
from provisioner.api.network.vpc_attachment import ForwardingState
from provisioner.network.agent.boot.plane import ServedBoot
from provisioner.network.agent.dhcp.served import ServedPort


@dataclass(frozen=True)
class Problem:
    """Something that keeps a port from being enforced. `reason` is CamelCase; `message` says object, observed, expected
    and remedy. `functions`: the ports that are isolated for it. `is_of_all`: it is the DPU's own, not some ports'."""

    reason: str
    message: str
    functions: tuple[str, ...] = ()
    is_of_all: bool = False


@dataclass(frozen=True)
class Exchanged:
    """Whether routes are exchanged with other DPUs as they should be; `reason` and `message` are as a Problem's."""

    holds: bool
    reason: str
    message: str


@dataclass(frozen=True)
class Enforced:
    """`agrees`: a dump of the kernel showed what the spec wants, without a problem. `changes`: operations that were
    carried out. `mended`: the kernel was other than it had been left for this very spec. `holds`: it showed that and no
    more, but for ports with a problem of their own, which are isolated. `served`: the ports whose hosts may ask for
    their addresses; `boot`: the host that boots by the DPU. `exchanged`: only where routes go by EVPN."""

    agrees: bool
    problems: tuple[Problem, ...]
    ports: tuple[PortStatus, ...]
    vnis: tuple[int, ...]
    changes: int
    mended: bool
    holds: bool = False
    served: tuple[ServedPort, ...] = ()
    boot: ServedBoot | None = None
    exchanged: Exchanged | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "agrees": self.agrees,
            "holds": self.holds,
            "problems": [
                {"reason": each.reason, "message": each.message, "functions": list(each.functions)}
                for each in self.problems
            ],
            "ports": to_json(self.ports),
            "vnis": list(self.vnis),
            "changes": self.changes,
            "mended": self.mended,
        }


def port_statuses(spec: DPUNetworkSpec, functions: Iterable[str], passing: Collection[str]) -> tuple[PortStatus, ...]:
    """Of every function that the spec or the agent knows. Nothing is handed to the card: the DPU's kernel forwards."""
    quarantined = {port.function for port in spec.ports if port.state == "Quarantined"}

    def state(function: str) -> ForwardingState:
        if function in passing:
            return "Tenant"
        return "Quarantined" if function in quarantined else "Isolated"

    known = sorted({*functions, *(port.function for port in spec.ports)})
    return tuple(PortStatus(function=each, state=state(each), offloaded="No") for each in known)


def spec_mark(spec: DPUNetworkSpec, interfaces: Mapping[str, str], backend: str) -> str:
    """By which it is known that this very spec was enforced before."""
    said = json.dumps([to_json(spec), sorted(interfaces.items()), backend], sort_keys=True)
    return hashlib.sha256(said.encode()).hexdigest()[:16]
