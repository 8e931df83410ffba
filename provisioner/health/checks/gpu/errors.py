"""The XIDs of this boot. Pure."""

from __future__ import annotations

from provisioner.api.gpu_settings import GpuSettings
from provisioner.api.node_facts import GpuXidFacts, NodeFacts
from provisioner.health.checks.finding import Finding, fine, wrong
from provisioner.health.checks.gpu.xids import XIDS


def check_errors(wanted: GpuSettings, facts: NodeFacts) -> Finding:
    failing = [each for each in facts.gpu_xids if _fails(wanted, each.xid)]
    if failing:
        worst = failing[0]
        known = XIDS.get(worst.xid)
        return wrong(
            "GPUErrors",
            f"XID{worst.xid}",
            observed="; ".join(_xid(each) for each in failing[:4]) + (" and more" if len(failing) > 4 else ""),
            expected="none of these in this boot",
            remedy=(known.action.remedy if known is not None else "look it up in NVIDIA's catalogue of XIDs")
            + f"; on the node: dmesg | grep -i xid; docs/gpus.md tells of XID {worst.xid}",
            patience_seconds=0.0,
        )
    if facts.gpu_driver is not None and facts.gpu_driver.kernel_log_unreadable:
        return wrong(
            "GPUErrors",
            "NoKernelLog",
            observed="the agent cannot read the kernel log (/dev/kmsg)",
            expected="that it can, to see XIDs",
            remedy="on the node: ls -l /dev/kmsg; journalctl -u provisioner-node",
        )
    others = ", ".join(_xid(each) for each in facts.gpu_xids[:4])
    return fine("GPUErrors", f"XIDs that keep nobody out of use: {others}" if others else "no XID in this boot")


def _fails(wanted: GpuSettings, xid: int) -> bool:
    if xid in wanted.ignored_xids:
        return False
    return xid in wanted.failing_xids or (xid in XIDS and XIDS[xid].action.fails)


def _xid(found: GpuXidFacts) -> str:
    meaning = XIDS[found.xid].meaning if found.xid in XIDS else "not known to this version"
    # One event may take several lines: an H100 wrote three for one misaligned address (XID 13).
    lines = f", {found.count} lines of the kernel log" if found.count > 1 else ""
    return f"XID {found.xid} of GPU {found.address} ({meaning}){lines}"
