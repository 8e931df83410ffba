"""The XIDs of GPUs, and SXids of NVSwitches, of this boot. Pure."""

from __future__ import annotations

from provisioner.api.nodes.facts import GpuXidFacts, NodeFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.health.checks.finding import Finding, fine, wrong
from provisioner.health.checks.gpu.xids import XIDS, Action


def check_errors(wanted: GpuSettings, facts: NodeFacts) -> Finding:
    failing = [each for each in facts.gpu_xids if _fails(wanted, each)]
    if failing:
        worst = failing[0]
        return wrong(
            "GPUErrors",
            f"{'SXID' if _is_of_switch(worst) else 'XID'}{worst.xid}",
            observed="; ".join(_words(each) for each in failing[:4]) + (" and more" if len(failing) > 4 else ""),
            expected="none of these in this boot",
            remedy=f"{_remedy(worst)}; on the node: dmesg | grep -i xid{_document(worst)}",
            patience_seconds=0.0,
        )
    driver = facts.gpu_driver
    if driver is not None and driver.kernel_log_unreadable:
        return wrong(
            "GPUErrors",
            "NoKernelLog",
            observed="the agent cannot read the kernel log (/dev/kmsg)",
            expected="that it can, to see XIDs",
            remedy="on the node: ls -l /dev/kmsg; journalctl -u provisioner-node",
        )
    seen = ", ".join(_words(each) for each in facts.gpu_xids[:4])
    parts = [f"XIDs that keep nobody out of use: {seen}"] if seen else []
    if driver is not None and driver.xids_unread:
        parts.append(f"lines of the kernel log that look like an XID and were not understood: {driver.xids_unread[0]}")
    if driver is not None and driver.xids_left_out:
        parts.append("more XIDs than are kept")
    return fine("GPUErrors", "; ".join(parts) or "no XID in this boot")


def _fails(wanted: GpuSettings, found: GpuXidFacts) -> bool:
    if found.xid in wanted.ignored_xids:
        return False
    if found.xid in wanted.failing_xids:
        return True
    if _is_of_switch(found):
        return found.severity == "Fatal"
    return found.severity != "Nonfatal" and found.xid in XIDS and XIDS[found.xid].action.fails


def _is_of_switch(found: GpuXidFacts) -> bool:
    return found.kind == "SXid"


def _document(found: GpuXidFacts) -> str:
    return "" if _is_of_switch(found) or found.xid not in XIDS else f"; docs/gpus.md tells of XID {found.xid}"


def _remedy(found: GpuXidFacts) -> str:
    if _is_of_switch(found):
        return Action.NVLINK.remedy
    return XIDS[found.xid].action.remedy if found.xid in XIDS else "look it up in NVIDIA's catalogue of XIDs"


def _words(found: GpuXidFacts) -> str:
    # One event may take several lines: an H100 wrote three for one misaligned address (XID 13).
    lines = f", {found.count} lines of the kernel log" if found.count > 1 else ""
    if _is_of_switch(found):
        return f"error {found.xid} of NVSwitch {found.address} ({found.severity or 'of unknown severity'}){lines}"
    meaning = XIDS[found.xid].meaning if found.xid in XIDS else "not known to this version"
    severity = f"; {found.severity}" if found.severity else ""
    return f"XID {found.xid} of GPU {found.address} ({meaning}{severity}){lines}"
