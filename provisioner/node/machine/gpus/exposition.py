"""The GPUs' metrics as Prometheus reads them, for node_exporter's textfile collector. Pure.

A file and no port: what may be read of a node is decided where the rest of its metrics is served. Names and units by
Prometheus' conventions; a value that NVML does not say is not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from provisioner.node.machine.gpus.kernel_log import KernelLog
from provisioner.node.machine.gpus.survey import NVLINK_ERRORS, SLOWDOWNS

FILE = "/run/provisioner/metrics/gpus.prom"
PREFIX = "provisioner_gpu_"
STATES = ("Ready", "Looking", "NoLibrary", "NotLoaded", "VersionMismatch", "Hung", "Crashed", "Failed")
MOST_PODS = 512
_POD_LABELS = {"pod_namespace": "namespace", "pod_name": "pod", "container_name": "container"}


class Metric(NamedTuple):
    """`key`: of the survey. What is read there is multiplied by `factor`."""

    name: str
    help: str
    key: str
    type: str = "gauge"
    factor: float = 1


OF_A_GPU = (
    Metric("temperature_celsius", "Temperature of the GPU.", "temperatureCelsius"),
    Metric("power_watts", "Power that the GPU draws.", "powerMilliwatts", factor=0.001),
    Metric("power_limit_watts", "Power limit that is in force.", "powerLimitMilliwatts", factor=0.001),
    Metric("energy_joules_total", "Energy since the driver loaded.", "energyMillijoules", "counter", 0.001),
    Metric("utilization_ratio", "Share of time in which a kernel ran.", "utilizationPercent", factor=0.01),
    Metric(
        "memory_utilization_ratio",
        "Share of time in which memory was read or written.",
        "memoryUtilizationPercent",
        factor=0.01,
    ),
    Metric("memory_bytes", "Memory of the GPU.", "memoryBytes"),
    Metric("memory_used_bytes", "Memory that is allocated, without the driver's reserve.", "memoryUsedBytes"),
    Metric("sm_clock_hertz", "Clock of the multiprocessors.", "smClockMhz", factor=1e6),
    Metric("memory_clock_hertz", "Clock of the memory.", "memoryClockMhz", factor=1e6),
    Metric("ecc_corrected_errors_total", "Corrected ECC errors since the driver loaded.", "eccCorrected", "counter"),
    Metric(
        "ecc_uncorrected_errors_total", "Uncorrected ECC errors since the driver loaded.", "eccUncorrected", "counter"
    ),
    Metric("remapped_rows", "Rows remapped for uncorrectable errors, ever.", "rowsRemappedUncorrectable"),
    Metric("nvlinks_active", "NVLinks that are up.", "nvlinksActive"),
    Metric("pcie_link_generation", "Generation that the PCIe link runs at now.", "pcieGeneration"),
    Metric("pcie_link_lanes", "Lanes that the PCIe link has.", "pcieWidth"),
    Metric("pcie_replays_total", "Packets that were sent again over PCIe.", "pcieReplays", "counter"),
)


def render(reading: Mapping[str, Any], log: KernelLog, now: float) -> str:
    """The file, of one survey. `pods` in it are as `pod_resources.list_gpus` gives them."""
    return "\n".join(_lines(reading, log, now)) + "\n"


def _lines(reading: Mapping[str, Any], log: KernelLog, now: float) -> Iterator[str]:
    yield from _head("survey_time_seconds", "When the GPUs were surveyed, in seconds since 1970.", "gauge")
    yield f"{PREFIX}survey_time_seconds {now:.3f}"
    yield from _head("driver_state", "1 for the state that NVML is in, docs/gpus.md tells of each.", "gauge")
    for state in STATES if reading["state"] in STATES else (*STATES, reading["state"]):
        yield _sample("driver_state", {"state": state}, int(state == reading["state"]))
    gpus = [gpu for gpu in reading.get("gpus", ()) if "uuid" in gpu or "error" in gpu]
    yield from _head("info", "What each GPU is.", "gauge")
    for gpu in gpus:
        about = {"name": gpu.get("name", ""), "driver_version": reading.get("driverVersion") or ""}
        yield _sample("info", _labels(gpu) | about, 1)
    yield from _head("up", "Whether the GPU answers NVML.", "gauge")
    for gpu in gpus:
        yield _sample("up", _labels(gpu), int("error" not in gpu))
    for metric in OF_A_GPU:
        having = [gpu for gpu in gpus if metric.key in gpu]
        if having:
            yield from _head(metric.name, metric.help, metric.type)
            for gpu in having:
                yield _sample(metric.name, _labels(gpu), gpu[metric.key] * metric.factor)
    yield from _states(gpus)
    yield from _errors(gpus, log)
    yield from _pods(gpus, reading.get("pods"))


def _states(gpus: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is on or off."""
    yield from _head("slowdown", "Whether the clocks are lowered now, for that reason.", "gauge")
    for gpu in gpus:
        for reason in SLOWDOWNS.values() if "slowdownsNow" in gpu else ():
            yield _sample("slowdown", _labels(gpu) | {"reason": reason}, int(reason in gpu["slowdownsNow"]))
    yield from _head("reset_needed", "Whether a bad row or page waits for a reset.", "gauge")
    for gpu in gpus:
        if "rowRemapping" in gpu or "pagesRetiredPending" in gpu:
            pending = gpu.get("rowRemapping") == "Pending" or bool(gpu.get("pagesRetiredPending"))
            yield _sample("reset_needed", _labels(gpu), int(pending))
    yield from _head("row_remapping_failed", "Whether a bad row could not be remapped.", "gauge")
    for gpu in gpus:
        if "rowRemapping" in gpu:
            yield _sample("row_remapping_failed", _labels(gpu), int(gpu["rowRemapping"] == "Failed"))
    yield from _head("nvlinks_inactive", "NVLinks that are down.", "gauge")
    for gpu in gpus:
        if "nvlinksInactive" in gpu:
            yield _sample("nvlinks_inactive", _labels(gpu), len(gpu["nvlinksInactive"]))
    yield from _head("fabric_registered", "Whether the GPU has registered with its NVLink fabric.", "gauge")
    for gpu in gpus:
        if "fabricState" in gpu:
            is_registered = gpu["fabricState"] == "Completed" and not gpu.get("fabricStatus")
            yield _sample("fabric_registered", _labels(gpu), int(is_registered))


def _errors(gpus: Sequence[Mapping[str, Any]], log: KernelLog) -> Iterator[str]:
    yield from _head("nvlink_errors_total", "Errors of all NVLinks of the GPU, by kind.", "counter")
    for gpu in gpus:
        for kind in NVLINK_ERRORS.values():
            if kind in (gpu.get("nvlinkErrors") or {}):
                yield _sample("nvlink_errors_total", _labels(gpu) | {"kind": kind}, gpu["nvlinkErrors"][kind])
    yield from _head("xid_errors_total", "Lines with that XID in the kernel log of this boot.", "counter")
    for each in log.xids.values():
        if "kind" in each or "severity" in each:
            continue
        uuid = next((gpu.get("uuid", "") for gpu in gpus if gpu.get("pciAddress") == each["address"]), "")
        labels = {"uuid": uuid, "pci_address": each["address"], "xid": each["xid"]}
        yield _sample("xid_errors_total", labels, each["count"])
    yield from _head("xid_nonfatal_errors_total", "Lines with an XID that the driver calls nonfatal.", "counter")
    for each in log.xids.values():
        if "kind" not in each and "severity" in each:
            labels = {"pci_address": each["address"], "xid": each["xid"]}
            yield _sample("xid_nonfatal_errors_total", labels, each["count"])
    yield from _head("nvswitch_errors_total", "Lines with that SXid in the kernel log of this boot.", "counter")
    for each in log.xids.values():
        if "kind" in each:
            labels = {"pci_address": each["address"], "sxid": each["xid"], "severity": each.get("severity", "")}
            yield _sample("nvswitch_errors_total", labels, each["count"])
    yield from _head("xid_unread_lines_total", "Lines that look like an XID and were not understood.", "counter")
    yield f"{PREFIX}xid_unread_lines_total {log.unread_count}"


def _pods(gpus: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    """A GPU that is shared has several pods, and a pod of a MIG device the GPU that has it."""
    yield from _head("pod_resources_up", "Whether the kubelet told which pod has which GPU.", "gauge")
    yield f"{PREFIX}pod_resources_up {int(pods is not None)}"
    yield from _head("pod_info", "Which container has the GPU, or a MIG device of it.", "gauge")
    parents = {mig: gpu.get("uuid", "") for gpu in gpus for mig in gpu.get("migUUIDs", ())}
    known = {gpu.get("uuid") for gpu in gpus}
    told: set[str] = set()
    for each in pods or ():
        device = each["device"].partition("::")[0]  # NVIDIA's plugin appends ::NUMBER to GPUs that pods share
        uuid = parents.get(device, device)
        if uuid not in known:
            continue
        # Prometheus has labels of its own named namespace, pod and container: those of the exporter.
        labels = {theirs: each[ours] for theirs, ours in _POD_LABELS.items()}
        sample = _sample("pod_info", {"uuid": uuid, **labels, "mig_uuid": device if device in parents else ""}, 1)
        if sample not in told and len(told) < MOST_PODS:
            told.add(sample)
            yield sample


def _labels(gpu: Mapping[str, Any]) -> dict[str, Any]:
    return {"gpu": gpu["index"], "uuid": gpu.get("uuid", ""), "pci_address": gpu.get("pciAddress", "")}


def _head(name: str, help_: str, type_: str) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {help_}"
    yield f"# TYPE {PREFIX}{name} {type_}"


def _sample(name: str, labels: Mapping[str, Any], value: float) -> str:
    written = ",".join(f'{key}="{_escaped(str(each))}"' for key, each in labels.items())
    return f"{PREFIX}{name}{{{written}}} {value:.12g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
