"""Faults by conditions of the Node: the kubelet's own, and those that other tools set. Pure.

A condition is a fault while it is True. When it began is the controller's observation: lastTransitionTime is written by
the tool, and is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from provisioner.api.nodes.facts import ObservedFault
from provisioner.api.servers.faults import FaultComponent, FaultSeverity
from provisioner.health.faults.normalise import normalise
from provisioner.rules.nodes import NodeView, ObservedCondition


@dataclass(frozen=True)
class ToolCondition:
    """A type of condition that another tool sets, and what it means if it is True. Its code is its type."""

    type: str
    component: FaultComponent
    severity: FaultSeverity
    tool: str


_NPD: Final = "node-problem-detector"
_NVSENTINEL: Final = "NVSentinel"

TOOL_CONDITIONS: Final = (
    # Source: kubernetes/node-problem-detector, config/kernel-monitor.json, readonly-monitor.json.
    ToolCondition("KernelDeadlock", "Kernel", "Critical", _NPD),
    ToolCondition("ReadonlyFilesystem", "Filesystem", "Critical", _NPD),
    ToolCondition("XfsShutdown", "Filesystem", "Critical", _NPD),
    ToolCondition("CperHardwareErrorFatal", "System", "Critical", _NPD),
    # Source: the same, config/systemd-monitor-counter.json, health-checker-kubelet.json, …-containerd.json.
    ToolCondition("FrequentKubeletRestart", "Kubelet", "Degraded", _NPD),
    ToolCondition("FrequentDockerRestart", "ContainerRuntime", "Degraded", _NPD),
    ToolCondition("FrequentContainerdRestart", "ContainerRuntime", "Degraded", _NPD),
    ToolCondition("KubeletUnhealthy", "Kubelet", "Degraded", _NPD),
    ToolCondition("ContainerRuntimeUnhealthy", "ContainerRuntime", "Degraded", _NPD),
    # Source: the same, config/kernel-monitor-counter.json, docker-monitor.json.
    ToolCondition("FrequentUnregisterNetDevice", "Kernel", "Degraded", _NPD),
    ToolCondition("CorruptDockerOverlay2", "ContainerRuntime", "Degraded", _NPD),
    # Source: NVIDIA/NVSentinel, docs/INTEGRATIONS.md, "Standard Condition Types". It sets a condition for fatal errors
    # alone; those of Gpu…Watch are DCGM's health checks.
    ToolCondition("GpuMemWatch", "GPU", "Critical", _NVSENTINEL),
    ToolCondition("GpuThermalWatch", "GPU", "Degraded", _NVSENTINEL),
    ToolCondition("GpuPcieWatch", "GPU", "Critical", _NVSENTINEL),
    ToolCondition("GpuPowerWatch", "GPU", "Degraded", _NVSENTINEL),
    ToolCondition("GpuInforomWatch", "GPU", "Degraded", _NVSENTINEL),
    ToolCondition("GpuSmWatch", "GPU", "Critical", _NVSENTINEL),
    ToolCondition("GpuNvlinkWatch", "GPU", "Critical", _NVSENTINEL),
    ToolCondition("GpuMcuWatch", "GPU", "Critical", _NVSENTINEL),
    ToolCondition("GpuPmuWatch", "GPU", "Critical", _NVSENTINEL),
    ToolCondition("GpuDriverWatch", "GPU", "Critical", _NVSENTINEL),
    ToolCondition("GpuCpusetWatch", "GPU", "Degraded", _NVSENTINEL),
    ToolCondition("SysLogsXIDError", "GPU", "Critical", _NVSENTINEL),
    ToolCondition("SysLogsSXIDError", "NVSwitch", "Critical", _NVSENTINEL),
    ToolCondition("SysLogsGPUFallenOff", "GPU", "Critical", _NVSENTINEL),
    ToolCondition("NVSwitchFatalError", "NVSwitch", "Critical", _NVSENTINEL),
    ToolCondition("NVSwitchDown", "NVSwitch", "Critical", _NVSENTINEL),
    ToolCondition("NVSwitchNonFatalError", "NVSwitch", "Info", _NVSENTINEL),
    # Source: the same, docs/nic-health-monitor.md.
    ToolCondition("SysLogsNICDriverError", "NIC", "Critical", _NVSENTINEL),
    # Source: the same, docs/runbooks/gpu-monitor-dcgm-failures.md. Without DCGM nobody looks at the GPUs.
    ToolCondition("GpuDcgmConnectivityFailure", "System", "Degraded", _NVSENTINEL),
    ToolCondition("DCGMError", "System", "Degraded", _NVSENTINEL),
)
"""Neither CSPMaintenance nor SyslogError of NVSentinel: the one is no fault, the other names none."""


def tool_faults(node: NodeView) -> tuple[ObservedFault, ...]:
    """Conditions of other tools that are True."""
    return tuple(
        normalise(
            ObservedFault(
                source="NodeCondition",
                component=known.component,
                code=known.type,
                severity=known.severity,
                evidence=_evidence(found, known.tool),
            )
        )
        for known in TOOL_CONDITIONS
        if (found := node.condition(known.type)) is not None and found.is_true
    )


def kubelet_faults(node: NodeView) -> tuple[ObservedFault, ...]:
    """The Node's Ready. Unknown: nothing was heard from the kubelet, so the machine may be dead or cut off."""
    ready = node.condition("Ready")
    if ready is None or ready.is_true or not node.has_reported:
        return ()
    code, severity = ("NodeUnreachable", "Critical") if ready.status != "False" else ("NodeNotReady", "Degraded")
    fault = ObservedFault(
        source="Node", component="Kubelet", code=code, severity=severity, evidence=_evidence(ready, "kubelet")
    )
    return (normalise(fault),)


def _evidence(condition: ObservedCondition, tool: str) -> str:
    return f"{tool}: {condition.type} is {condition.status} ({condition.reason}): {condition.message}"
