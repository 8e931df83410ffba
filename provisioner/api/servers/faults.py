"""Faults of a server: what is or was wrong with its hardware or its system, whoever found it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from provisioner.api.machinery.schema import described, optional

MAX_FAULTS: Final = 32
MAX_DEVICE: Final = 64
MAX_CODE: Final = 63
MAX_EVIDENCE: Final = 256
MAX_COUNT: Final = 1_000_000_000
CODE_PATTERN: Final = r"^[A-Z][A-Za-z0-9]{0,62}$"
DEVICE_PATTERN: Final = r"^[A-Za-z0-9_.:@#/-]{0,64}$"
EVIDENCE_PATTERN: Final = r"^[^\x00-\x1f\x7f]*$"

FaultSource = Literal["KernelLog", "NVML", "Counters", "Node", "NodeCondition"]
FaultComponent = Literal[
    "GPU",
    "NVSwitch",
    "NIC",
    "InfiniBand",
    "CPU",
    "Memory",
    "PCIe",
    "Disk",
    "Filesystem",
    "Kernel",
    "Kubelet",
    "ContainerRuntime",
    "Clock",
    "System",
]
FaultSeverity = Literal["Info", "Degraded", "Critical"]
SEVERITIES: Final[tuple[FaultSeverity, ...]] = ("Info", "Degraded", "Critical")
"""From the least to the worst."""


@dataclass(frozen=True, kw_only=True)
class FaultRecord:
    """One fault. Source, component, device and code identify it."""

    source: FaultSource = described(
        "Where it was found. KernelLog: the node's kernel log; NVML: NVIDIA's library; Counters: those of network and "
        "InfiniBand ports; Node: kubelet, container runtime and clock; NodeCondition: a condition of another tool."
    )
    component: FaultComponent = described("Which part of the server it concerns.")
    device: str = described(
        "PCI address or name of the device; empty if the fault concerns none in particular.",
        max_length=MAX_DEVICE,
        pattern=DEVICE_PATTERN,
    )
    code: str = described(
        "What it is, such as XID79, SXID20034 or UncorrectedMemoryError.", max_length=MAX_CODE, pattern=CODE_PATTERN
    )
    severity: FaultSeverity = described(
        "Info: no action is needed. Degraded: the device works with limits, or will probably fail. Critical: jobs fail "
        "or lose data. It never becomes less."
    )
    first_time: str = described("When the controller first saw it, by the controller's clock.", format="date-time")
    last_time: str = described(
        "When the controller last saw it new or more often, by the controller's clock.", format="date-time"
    )
    count: int = described(
        "How often it was seen in the boot bootID; of a state, such as a condition, how often it began.",
        minimum=1,
        maximum=MAX_COUNT,
    )
    boot_id: str | None = optional("Kernel boot id in which it was last seen.", max_length=63)
    reported: bool = described(
        "Whether the node's latest report of the running boot has it. A record stays when it is no longer reported."
    )
    evidence: str = described(
        "What was found, such as the line of the kernel log.",
        default="",
        max_length=MAX_EVIDENCE,
        pattern=EVIDENCE_PATTERN,
    )

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.source, self.component, self.device, self.code
