"""What a NodePool says so that the CPUs, the memory and the devices of a pod come from one NUMA node."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Final

from provisioner.api.machinery.schema import CelRule, described

_PATTERN: Final = "^([1-9][0-9]{0,5})(Mi|Gi)$"
_UNITS: Final = {"Mi": 1 << 20, "Gi": 1 << 30}
_QUANTITY_RULES: Final = (
    CelRule(
        f"self.matches('{_PATTERN}')",
        "an amount of memory is a whole number of Mi or Gi, such as 2Gi",
        expression="'\\'' + self + '\\' is no amount of memory: write a whole number of Mi or Gi, such as 2Gi'",
    ),
)


@dataclass(frozen=True, kw_only=True)
class NumaAlignment:
    """Reserved for the system on each NUMA node; pods in the QoS class Guaranteed get whole CPUs of the others.

    What follows for a kubelet depends on its machine, and is computed there: reservedSystemCPUs, reservedMemory,
    systemReserved, evictionHard and the policies of CPU, memory and topology manager. On a machine that is too small
    the kubelet starts without them, and the node's facts say why.
    """

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            f"!self.reservedMemory.matches('{_PATTERN}') || !self.evictionMemory.matches('{_PATTERN}') || "
            "quantity(self.evictionMemory).isLessThan(quantity(self.reservedMemory))",
            "evictionMemory is a part of what is reserved: make it less than reservedMemory",
            field=".evictionMemory",
        ),
    )
    reserved_cores: int = described(
        "Cores of each NUMA node, with all their threads, that are the system's and the kubelet's.",
        server_default=1,
        minimum=1,
        maximum=64,
    )
    reserved_memory: str = described(
        "Memory of each NUMA node that is the system's: the root and container images lie in it, too.",
        server_default="2Gi",
        max_length=8,
        rules=_QUANTITY_RULES,
    )
    eviction_memory: str = described(
        "Of all that: when less than this is available in the machine, pods are evicted.",
        server_default="512Mi",
        max_length=8,
        rules=_QUANTITY_RULES,
    )


COMPUTED_FIELDS: Final = {
    "cpuManagerPolicy": "string",
    "memoryManagerPolicy": "string",
    "topologyManagerPolicy": "string",
    "reservedSystemCPUs": "string",
    "reservedMemory": "array",
    "systemReserved": "object",
    "kubeReserved": "object",
    "evictionHard": "object",
}
"""Fields of KubeletConfiguration, and their types, that are computed or must fit what is computed."""

NOT_BESIDE_CONFIGURATION: Final = CelRule(
    "!has(self.numaAlignment) || !has(self.configuration) || ("
    + " && ".join(f"!has(self.configuration.{name})" for name in COMPUTED_FIELDS)
    + ")",
    f"with numaAlignment each machine computes {', '.join(COMPUTED_FIELDS)}: leave them out of configuration",
    field=".configuration",
)


def memory_bytes(text: str) -> int:
    """Of an amount of memory, such as `2Gi`. Raises: ValueError for what the API server refuses."""
    found = re.fullmatch(_PATTERN, text)
    if found is None:
        raise ValueError(f"{text!r} is no amount of memory")
    return int(found[1]) * _UNITS[found[2]]
