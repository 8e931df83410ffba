"""The part of the node's facts that is about GPUs. Pure.

Only what lasts: temperature, power and load are metrics, for each write of the facts is one of the Node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.node.machine.gpus.kernel_log import KernelLog

COUNTS = ("count", "eccUncorrected", "eccUncorrectedAggregate")
"""How often an error came, once it came at all, is told when something else is, or at the next repetition."""
_MIB = 1 << 20
_DRIVER = (
    "state",
    "count",
    "driverVersion",
    "libraryVersion",
    "moduleLoaded",
    "moduleInstalled",
    "moduleVersion",
    "switches",
    "fabricManagerVersion",
    "fabricManagerState",
)
_GPU = (
    "uuid",
    "pciAddress",
    "name",
    "error",
    "eccEnabled",
    "eccUncorrected",
    "eccUncorrectedAggregate",
    "rowsRemappedUncorrectable",
    "rowRemapping",
    "nvlinksActive",
    "fabricState",
    "fabricStatus",
    "fabricClique",
    "fabricCluster",
    "pcieWidth",
    "pcieMaxWidth",
    "pcieMaxGeneration",
    "smClockMaxMhz",
    "migEnabled",
)
_LISTS = ("nvlinksInactive", "fabricFaults", "slowdowns")
_TEXT_LENGTH = 80


def gpu_facts(reading: Mapping[str, Any] | None, log: KernelLog) -> dict[str, Any]:
    """gpuDriver, gpus and gpuXids as `provisioner.api.nodes.facts` names them; nothing where there is no reading."""
    if reading is None:
        return {}
    driver = {key: _short(reading[key]) for key in _DRIVER if key in reading}
    if "message" in reading:
        driver["message"] = str(reading["message"])[:200]
    if log.complaints and reading["state"] != "Looking":
        driver["kernelMessages"] = list(log.complaints)
    if not log.is_readable:
        driver["kernelLogUnreadable"] = True
    if log.xids_left_out:
        driver["xidsLeftOut"] = True
    if log.unread:
        driver["xidsUnread"] = list(log.unread)
    facts: dict[str, Any] = {"gpuDriver": driver}
    if gpus := [_gpu(each) for each in reading.get("gpus", ())]:
        facts["gpus"] = gpus
    if log.xids:
        facts["gpuXids"] = [dict(each) for each in log.xids.values()]
    return facts


def _gpu(read: Mapping[str, Any]) -> dict[str, Any]:
    gpu = {key: _short(read[key]) for key in _GPU if key in read}
    gpu |= {key: list(read[key]) for key in _LISTS if read.get(key)}
    if "memoryBytes" in read:
        gpu["memoryMib"] = read["memoryBytes"] // _MIB
    for key, source in (
        ("powerLimitWatts", "powerLimitMilliwatts"),
        ("powerLimitDefaultWatts", "powerLimitDefaultMilliwatts"),
    ):
        if source in read:
            gpu[key] = read[source] // 1000
    if read.get("pagesRetiredPending"):
        gpu["pagesRetiredPending"] = True
    return gpu


def without_counts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """`facts` as they are compared: of what counts up by itself only whether it is above 0."""
    compared = dict(facts)
    for part in ("gpus", "gpuXids", "faults"):
        if part in facts:
            compared[part] = [
                {key: min(value, 1) if key in COUNTS else value for key, value in each.items()} for each in facts[part]
            ]
    return compared


def _short(value: Any) -> Any:
    return value[:_TEXT_LENGTH] if isinstance(value, str) else value
