"""One reading of all GPUs by NVML: `python3 -I -m provisioner.node gpus` prints it.

It runs in a process of its own: on broken hardware a call may never return, or take the process with it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_uint, c_void_p
from typing import Any, TypeVar

from provisioner.node.machine.gpus.nvml import (
    DRIVER_NOT_LOADED,
    FABRIC_INFO_VERSION,
    GPU_IS_BROKEN,
    MEMORY_VERSION,
    VERSION_MISMATCH,
    FabricInfo,
    Memory,
    Nvml,
    NvmlError,
    PciInfo,
    Utilization,
)

T = TypeVar("T")

READY, NO_LIBRARY, NOT_LOADED, MISMATCH, FAILED = "Ready", "NoLibrary", "NotLoaded", "VersionMismatch", "Failed"

MOST_GPUS = 16
MOST_NVLINKS = 36
MOST_MIG_DEVICES = 8
FABRIC_STATES = ("NotSupported", "NotStarted", "InProgress", "Completed")
SLOWDOWNS = {0x8: "HwSlowdown", 0x20: "SwThermal", 0x40: "HwThermal", 0x80: "HwPowerBrake"}
"""Reasons for low clocks that are none on a healthy machine; an idle GPU, a power cap under load and set clocks are."""
CORRECTED, UNCORRECTED = 0, 1
VOLATILE, AGGREGATE = 0, 1
SM_CLOCK, MEMORY_CLOCK = 1, 2
NVLINK_ERRORS = {0: "replay", 1: "recovery", 2: "crcFlit", 3: "crcData"}
_FABRIC_HEALTH = ((0, "DegradedBandwidth"), (2, "RouteRecovery"), (4, "RouteUnhealthy"), (6, "AccessTimeoutRecovery"))
_FABRIC_CONFIGURATION = (
    "WrongSystemGUID",
    "WrongChassisSerial",
    "NoPartition",
    "TooFewNVLinks",
    "IncompatibleFirmware",
    "WrongLocation",
    "InvalidGPUState",
)


def survey(library: str) -> dict[str, Any]:
    """`state`, `message` where it is not Ready, versions, `count`, and `gpus`: what each says, as far as it says it."""
    try:
        nvml = Nvml(library)
    except OSError as error:
        return {"state": NO_LIBRARY, "message": str(error)[:200]}
    # The library's version can be asked for before it is initialized: it is what a mismatch is about.
    found: dict[str, Any] = {"libraryVersion": _own_version(_said(nvml.text, "nvmlSystemGetNVMLVersion"))}
    try:
        nvml.call("nvmlInit_v2")
    except NvmlError as error:
        state = {DRIVER_NOT_LOADED: NOT_LOADED, VERSION_MISMATCH: MISMATCH}.get(error.code, FAILED)
        return {**found, "state": state, "message": str(error)}
    try:
        count = nvml.number("nvmlDeviceGetCount_v2")
    except NvmlError as error:
        return {**found, "state": FAILED, "message": str(error)}
    found |= {
        "state": READY,
        "driverVersion": _said(nvml.text, "nvmlSystemGetDriverVersion"),
        "count": count,
        "gpus": [read_gpu(nvml, index) for index in range(min(count, MOST_GPUS))],
    }
    return found


def read_gpu(nvml: Nvml, index: int) -> dict[str, Any]:
    """One GPU. With `error`, what was read before it."""
    gpu: dict[str, Any] = {"index": index}
    try:
        device = nvml.handle("nvmlDeviceGetHandleByIndex_v2", c_uint(index))
        for part in (_identity, _memory, _links, _fabric, _clocks, _load, _mig):
            part(nvml, device, gpu)
    except NvmlError as error:
        gpu |= {"error": error.name, "errorFunction": error.function}
    return {key: value for key, value in gpu.items() if value is not None}


def _said(ask: Callable[..., T], *arguments: object) -> T | None:
    """What `ask` answers; None where this GPU or this driver has no answer.

    Raises: NvmlError where the GPU itself is broken.
    """
    try:
        return ask(*arguments)
    except NvmlError as error:
        if error.code in GPU_IS_BROKEN:
            raise
        return None


def _own_version(version: str | None) -> str | None:
    """NVML puts its major version (that of CUDA) before the driver's: 12.550.163.01."""
    return version.partition(".")[2] if version and version.count(".") >= 3 else version


def _identity(nvml: Nvml, device: c_void_p, gpu: dict[str, Any]) -> None:
    pci = PciInfo()
    nvml.fill("nvmlDeviceGetPciInfo_v3", device, pci)
    gpu["pciAddress"] = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
    gpu["uuid"] = _said(nvml.text, "nvmlDeviceGetUUID", device)
    gpu["name"] = _said(nvml.text, "nvmlDeviceGetName", device)
    for key, function in (
        ("pcieGeneration", "nvmlDeviceGetCurrPcieLinkGeneration"),
        ("pcieWidth", "nvmlDeviceGetCurrPcieLinkWidth"),
        ("pcieMaxGeneration", "nvmlDeviceGetMaxPcieLinkGeneration"),
        ("pcieMaxWidth", "nvmlDeviceGetMaxPcieLinkWidth"),
        ("pcieReplays", "nvmlDeviceGetPcieReplayCounter"),
    ):
        gpu[key] = _number(nvml, function, device)


def _memory(nvml: Nvml, device: c_void_p, gpu: dict[str, Any]) -> None:
    memory = Memory(version=MEMORY_VERSION)
    if _filled(nvml, "nvmlDeviceGetMemoryInfo_v2", device, memory):
        gpu |= {"memoryBytes": memory.total, "memoryUsedBytes": memory.used}
    modes = _said(nvml.numbers, "nvmlDeviceGetEccMode", 2, device)
    gpu["eccEnabled"] = bool(modes[0]) if modes else None
    for key, kind, span in (
        ("eccCorrected", CORRECTED, VOLATILE),
        ("eccUncorrected", UNCORRECTED, VOLATILE),
        ("eccUncorrectedAggregate", UNCORRECTED, AGGREGATE),
    ):
        gpu[key] = _said(nvml.large_number, "nvmlDeviceGetTotalEccErrors", device, c_uint(kind), c_uint(span))
    if rows := _said(nvml.numbers, "nvmlDeviceGetRemappedRows", 4, device):
        gpu |= {"rowsRemappedCorrectable": rows[0], "rowsRemappedUncorrectable": rows[1]}
        gpu["rowRemapping"] = "Failed" if rows[3] else "Pending" if rows[2] else "Settled"
    elif (pending := _number(nvml, "nvmlDeviceGetRetiredPagesPendingStatus", device)) is not None:
        gpu["pagesRetiredPending"] = bool(pending)


def _links(nvml: Nvml, device: c_void_p, gpu: dict[str, Any]) -> None:
    states: dict[int, int] = {}
    for link in range(MOST_NVLINKS):
        state = _number(nvml, "nvmlDeviceGetNvLinkState", device, link)
        if state is None:
            break  # links are numbered from 0 without gaps
        states[link] = state
    if not states:
        return
    gpu["nvlinksActive"] = sum(1 for state in states.values() if state)
    gpu["nvlinksInactive"] = [link for link, state in states.items() if not state]
    errors: dict[str, int] = {}
    for link in states:
        for counter, name in NVLINK_ERRORS.items():
            function = "nvmlDeviceGetNvLinkErrorCounter"
            count = _said(nvml.large_number, function, device, c_uint(link), c_uint(counter))
            if count is None:
                break
            errors[name] = errors.get(name, 0) + count
        if not errors:
            break  # Blackwell counts elsewhere: no other link answers either
    gpu["nvlinkErrors"] = errors or None


def _fabric(nvml: Nvml, device: c_void_p, gpu: dict[str, Any]) -> None:
    info = FabricInfo(version=FABRIC_INFO_VERSION)
    if not _filled(nvml, "nvmlDeviceGetGpuFabricInfoV", device, info) or not info.state:
        return
    gpu["fabricState"] = FABRIC_STATES[info.state] if info.state < len(FABRIC_STATES) else str(info.state)
    if info.state == FABRIC_STATES.index("Completed"):
        gpu |= {"fabricStatus": info.status, "fabricClique": info.clique_id}
        cluster = bytes(info.cluster_uuid)
        gpu["fabricCluster"] = cluster.hex() if any(cluster) else None
        gpu["fabricFaults"] = fabric_faults(info.health_mask)


def fabric_faults(mask: int) -> list[str]:
    """What nvmlGpuFabricInfo_v2_t's health mask says is not well. Pure."""
    faults = [name for shift, name in _FABRIC_HEALTH if mask >> shift & 3 == 1]
    configuration = mask >> 8 & 15
    if configuration > 1:
        known = configuration - 2 < len(_FABRIC_CONFIGURATION)
        faults.append(_FABRIC_CONFIGURATION[configuration - 2] if known else f"Configuration{configuration}")
    return faults


def _clocks(nvml: Nvml, device: c_void_p, gpu: dict[str, Any]) -> None:
    reasons = _said(nvml.large_number, "nvmlDeviceGetCurrentClocksThrottleReasons", device)
    if reasons is not None:
        gpu["slowdowns"] = [name for bit, name in SLOWDOWNS.items() if reasons & bit]
    gpu["smClockMhz"] = _number(nvml, "nvmlDeviceGetClockInfo", device, SM_CLOCK)
    gpu["smClockMaxMhz"] = _number(nvml, "nvmlDeviceGetMaxClockInfo", device, SM_CLOCK)
    gpu["memoryClockMhz"] = _number(nvml, "nvmlDeviceGetClockInfo", device, MEMORY_CLOCK)
    gpu["temperatureCelsius"] = _number(nvml, "nvmlDeviceGetTemperature", device, 0)
    for key, function in (
        ("powerMilliwatts", "nvmlDeviceGetPowerUsage"),
        ("powerLimitMilliwatts", "nvmlDeviceGetEnforcedPowerLimit"),
        ("powerLimitDefaultMilliwatts", "nvmlDeviceGetPowerManagementDefaultLimit"),
    ):
        gpu[key] = _number(nvml, function, device)
    gpu["energyMillijoules"] = _said(nvml.large_number, "nvmlDeviceGetTotalEnergyConsumption", device)


def _load(nvml: Nvml, device: c_void_p, gpu: dict[str, Any]) -> None:
    utilization = Utilization()
    if _filled(nvml, "nvmlDeviceGetUtilizationRates", device, utilization):
        gpu |= {"utilizationPercent": utilization.gpu, "memoryUtilizationPercent": utilization.memory}


def _mig(nvml: Nvml, device: c_void_p, gpu: dict[str, Any]) -> None:
    modes = _said(nvml.numbers, "nvmlDeviceGetMigMode", 2, device)
    if not modes:
        return
    gpu["migEnabled"] = bool(modes[0])
    if not modes[0]:
        return
    uuids = []
    for index in range(MOST_MIG_DEVICES):
        uuid = _said(_mig_uuid, nvml, device, index)
        if uuid is not None:
            uuids.append(uuid)
    gpu["migUUIDs"] = uuids


def _mig_uuid(nvml: Nvml, device: c_void_p, index: int) -> str:
    handle = nvml.handle("nvmlDeviceGetMigDeviceHandleByIndex", device, c_uint(index))
    return nvml.text("nvmlDeviceGetUUID", handle)


def _number(nvml: Nvml, function: str, device: c_void_p, *arguments: int) -> int | None:
    return _said(nvml.number, function, device, *(c_uint(each) for each in arguments))


def _filled(nvml: Nvml, function: str, device: c_void_p, into: ctypes.Structure) -> bool:
    def fill() -> bool:
        nvml.fill(function, device, into)
        return True

    return _said(fill) is not None
