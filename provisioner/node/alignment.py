"""What a kubelet needs so that CPUs, memory and devices of a pod come from one NUMA node. Pure.

The pool says what each NUMA node keeps for the system; which processors that are, and the sums that must agree, depend
on the machine. A kubelet does not start where they do not: so what cannot be right is left out, with words, and the
machine joins all the same.

Source: Kubernetes, "Control CPU Management Policies on the Node", "Utilizing the NUMA-aware Memory Manager" (the memory
that is reserved on all NUMA nodes is systemReserved, kubeReserved and evictionHard together, exactly).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.node.machine.numa import NumaNode

MOST_NUMA_NODES = 8
"""More of them the kubelet's topology manager does not take."""

_KEYS = ("reservedCores", "reservedMemoryBytes", "evictionMemoryBytes")


def align(
    kubelet: Mapping[str, object], asked: object, nodes: Sequence[NumaNode]
) -> tuple[dict[str, object], str | None]:
    """The configuration to start with, and what came of what was `asked`, in words; None where nothing was."""
    if asked is None:
        return dict(kubelet), None
    numbers = [asked.get(key) if isinstance(asked, Mapping) else None for key in _KEYS]
    cores, memory, eviction = (each if type(each) is int and 0 < each < 1 << 60 else 0 for each in numbers)
    obstacle = _obstacle(cores, memory, eviction, nodes)
    if obstacle is not None:
        return dict(kubelet), f"not aligned to NUMA nodes: {obstacle}"
    ours = [node for node in nodes if node.cores]
    reserved = [processor for node in ours for core in node.cores[:cores] for processor in core]
    thresholds = kubelet.get("evictionHard")
    aligned = {
        **{key: value for key, value in kubelet.items() if key != "kubeReserved"},
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "single-numa-node",
        "memoryManagerPolicy": "Static",
        "reservedSystemCPUs": ",".join(str(each) for each in sorted(reserved)),
        "reservedMemory": [{"numaNode": node.number, "limits": {"memory": str(memory)}} for node in ours],
        "systemReserved": {"memory": str(memory * len(ours) - eviction)},
        "evictionHard": {**(thresholds if isinstance(thresholds, Mapping) else {}), "memory.available": str(eviction)},
    }
    return aligned, (
        f"aligned to {len(ours)} NUMA nodes: processors {aligned['reservedSystemCPUs']} and {memory >> 20} MiB "
        "of each are the system's"
    )


def _obstacle(cores: int, memory: int, eviction: int, nodes: Sequence[NumaNode]) -> str | None:
    if not cores or not memory or not 0 < eviction < memory:
        return "the join service's answer does not say what to reserve"
    if not any(node.cores for node in nodes):
        return "the kernel names no NUMA node with processors"
    if len(nodes) > MOST_NUMA_NODES:
        return f"this machine has {len(nodes)} NUMA nodes, and the kubelet takes {MOST_NUMA_NODES}"
    for node in nodes:
        # One without processors (memory of a GPU, or behind CXL) has nothing of the system's.
        if node.cores and len(node.cores) <= cores:
            return (
                f"NUMA node {node.number} has {len(node.cores)} cores and {cores} are to be the system's: none is left "
                "for pods; lower numaAlignment.reservedCores of the NodePool"
            )
        if node.cores and node.memory_bytes < 2 * memory:
            return (
                f"NUMA node {node.number} has {node.memory_bytes >> 20} MiB of memory and {memory >> 20} MiB are to be "
                "the system's, more than half; lower numaAlignment.reservedMemory of the NodePool, or put memory in"
            )
    return None
