"""Faults that the agent in the image reports in its Node's facts. Pure.

Only of the boot that runs, and only against the node: whatever an agent leaves out takes no record away.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from provisioner.api.nodes.contract import NODE_FACTS_ANNOTATION
from provisioner.api.nodes.facts import GpuFacts, GpuXidFacts, NodeFacts, ObservedFault
from provisioner.health.checks.facts import MAX_BYTES
from provisioner.health.checks.gpu.look import NVIDIA
from provisioner.health.checks.gpu.xids import XIDS, Action
from provisioner.health.faults.normalise import SOURCES_OF_AGENT, normalise
from provisioner.rules.nodes import NodeView

MOST_READ: Final = 256
"""Faults of one kind that are looked at: several times what an agent reports."""

SEVERITY_OF_ACTION: Final = {
    Action.NOTHING: "Info",
    Action.RESTART_JOB: "Info",
    Action.SUPPORT: "Degraded",
    Action.NVLINK: "Degraded",
    Action.RESET: "Critical",
    Action.REBOOT: "Critical",
    Action.POWER_CYCLE: "Critical",
    Action.CABLES: "Critical",
    Action.REPLACE: "Critical",
}
"""By what NVIDIA's catalogue asks for. A GPU that has to be reset loses the jobs on it."""

DRIVER_STATES: Final = {
    "Hung": "Critical",
    "Crashed": "Critical",
    "Failed": "Critical",
    "NotLoaded": "Info",
    "NoLibrary": "Info",
    "VersionMismatch": "Critical",
}
"""States of GpuDriverFacts in which no job gets a GPU; the check GPUDriver knows whether the pool expects one to run.
Ready and Looking are none; what is not known says nothing."""
LOST: Final = frozenset(("GPU_IS_LOST", "RESET_REQUIRED"))


def agent_faults(node: NodeView) -> tuple[ObservedFault, ...]:
    """Of the kernel log and of counters, as the agent read them."""
    facts = _facts(node)
    if facts is None:
        return ()
    found = tuple(normalise(each, SOURCES_OF_AGENT) for each in facts.faults[:MOST_READ])
    left_out = ObservedFault(source="Node", component="System", code="FaultsLeftOut", severity="Info")
    return (*found, left_out) if facts.faults_left_out or len(facts.faults) > MOST_READ else found


def xid_faults(node: NodeView) -> tuple[ObservedFault, ...]:
    """XIDs of GPUs and SXids of NVSwitches, by NVIDIA's catalogue."""
    facts = _facts(node)
    return tuple(_of_xid(each) for each in facts.gpu_xids[:MOST_READ]) if facts is not None else ()


def gpu_faults(node: NodeView) -> tuple[ObservedFault, ...]:
    """What NVML says of the GPUs."""
    facts = _facts(node)
    return tuple(_of_gpus(facts)) if facts is not None else ()


def driver_faults(node: NodeView) -> tuple[ObservedFault, ...]:
    """A GPU driver that does not answer, or does not run."""
    facts = _facts(node)
    driver = facts.gpu_driver if facts is not None else None
    if facts is None or driver is None or driver.state not in DRIVER_STATES or _is_anothers(facts):
        return ()
    said = driver.message or "; ".join(driver.kernel_messages[:1])
    return (_by_nvml("", f"Driver{driver.state}", DRIVER_STATES[driver.state], said),)


def service_faults(node: NodeView) -> tuple[ObservedFault, ...]:
    """Kubelet, container runtime and clock, as the agent sees them."""
    facts = _facts(node)
    return tuple(_of_services(facts)) if facts is not None else ()


def _facts(node: NodeView) -> NodeFacts | None:
    """Those of the boot that runs; None also for what is too long to be an agent's."""
    return node.facts if len(node.annotations.get(NODE_FACTS_ANNOTATION) or "") <= MAX_BYTES else None


def _of_xid(found: GpuXidFacts) -> ObservedFault:
    is_switch = found.kind == "SXid"
    if is_switch:
        severity = "Critical" if found.severity == "Fatal" else "Info"
    elif found.severity == "Nonfatal" or found.xid not in XIDS:
        severity = "Info"
    else:
        severity = SEVERITY_OF_ACTION[XIDS[found.xid].action]
    return normalise(
        ObservedFault(
            source="KernelLog",
            component="NVSwitch" if is_switch else "GPU",
            device=found.address,
            code=f"{'SXID' if is_switch else 'XID'}{found.xid}",
            severity=severity,
            count=found.count,
            evidence=f"{found.kind or 'Xid'} {found.xid} {found.severity or ''}".strip(),
        )
    )


def _of_gpus(facts: NodeFacts) -> Iterator[ObservedFault]:
    driver = facts.gpu_driver
    for gpu in facts.gpus[:MOST_READ]:
        yield from _of_gpu(gpu)
    if driver is not None and driver.kernel_log_unreadable:
        yield ObservedFault(source="Node", component="System", code="KernelLogUnreadable", severity="Degraded")


def _of_gpu(gpu: GpuFacts) -> Iterator[ObservedFault]:
    device = gpu.pci_address or gpu.uuid or ""
    if gpu.error is not None:
        yield _by_nvml(device, "GPULost" if gpu.error in LOST else "GPUBroken", "Critical", gpu.error)
    if gpu.row_remapping == "Failed":
        yield _by_nvml(device, "RowRemappingFailed", "Critical", "a bad row of memory could not be remapped")
    if gpu.row_remapping == "Pending" or gpu.pages_retired_pending:
        yield _by_nvml(device, "RowRemappingPending", "Degraded", "a bad row or page of memory waits for a reset")
    if gpu.ecc_uncorrected:
        words = "uncorrected ECC errors since the driver was loaded"
        yield _by_nvml(device, "UncorrectedErrors", "Critical", words, gpu.ecc_uncorrected)


def _by_nvml(device: str, code: str, severity: str, evidence: str, count: int | None = None) -> ObservedFault:
    return normalise(
        ObservedFault(
            source="NVML",
            component="GPU",
            device=device,
            code=code,
            severity=severity,
            count=count,
            evidence=evidence,
        )
    )


def _is_anothers(facts: NodeFacts) -> bool:
    """Whether the GPUs are another driver's, such as vfio-pci: NVIDIA's is not expected to run then."""
    gpus = [each for each in facts.pci if each.vendor_id == NVIDIA and each.class_id.startswith("03")]
    return any(each.driver not in (None, "nvidia") for each in gpus)


def _of_services(facts: NodeFacts) -> Iterator[ObservedFault]:
    if facts.kubelet_active is False:
        yield ObservedFault(source="Node", component="Kubelet", code="KubeletInactive", severity="Critical")
    if facts.runtime_active is False:
        yield ObservedFault(source="Node", component="ContainerRuntime", code="RuntimeInactive", severity="Critical")
    if facts.clock_synchronized is False:
        # Info: a subnet may have no NTP servers, and the check Clock knows whether it has.
        yield ObservedFault(source="Node", component="Clock", code="ClockNotSynchronized", severity="Info")
