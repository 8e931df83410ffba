"""Records what the agent reads from a real NVIDIA GPU: `python3 -m tests.hardware.gpu.record FOLDER`, as root.

Needs Python alone, and changes no setting of the GPU. Surveys run as the agent runs them: by a Python that has nothing
but the agent, in processes of their own. Each NVML call is written with its answer, so that a test replays the survey
without a GPU. UUIDs and serial numbers are masked.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import re
import select
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import Structure, c_uint, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any, Final

from provisioner.api.machinery.codec import from_json
from provisioner.api.nodes.facts import NodeFacts
from provisioner.api.pools.gpu_settings import GpuSettings
from provisioner.api.pools.pool_settings import ExpectedGpus, ExpectedInventory, VerificationSettings
from provisioner.health.checks.gpu.look import check_gpus
from provisioner.node.machine.boot_facts import BootFacts
from provisioner.node.machine.facts import node_facts, render
from provisioner.node.machine.gpus import exposition, survey
from provisioner.node.machine.gpus.facts import gpu_facts
from provisioner.node.machine.gpus.kernel import driver_facts, has_gpus
from provisioner.node.machine.gpus.nvml import ERRORS, LIBRARY, Nvml, NvmlError
from provisioner.node.machine.gpus.watch import GpuWatch
from tests.node.machine import BOOT_ID, install_agent

LONG: Final = 60.0
SURVEYS: Final = 5
HELD_MIB: Final = 1024
LOAD_SAMPLES: Final = 10
LOAD_KEYS: Final = ("slowdowns", "smClockMhz", "powerMilliwatts", "temperatureCelsius", "utilizationPercent")
MOST_LOG_LINES: Final = 80
GPU_PARTS: Final = ("pci", "gpuDriver", "gpus", "gpuXids")
"""Of the facts; the rest is about the machine and not about its GPUs."""
POOLS: Final[dict[str, GpuSettings | None]] = {
    "expects GPUs": None,
    "GPUs without a fabric": GpuSettings(fabric="Ignored", max_remapped_rows=8, mig="Disabled"),
    "HGX": GpuSettings(fabric="Required", nvlinks=18, pcie_generation=5, pcie_width=16, mig="Disabled"),
}
"""What is asked of the same facts."""

DAEMONS: Final = {"nvidia-persiste", "nv-fabricmanage", "nv-hostengine"}
"""As the kernel shortens their names."""

MORE_NUMBERS: Final = (
    "nvmlDeviceGetPersistenceMode",
    "nvmlDeviceGetPerformanceState",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetGpuMaxPcieLinkGeneration",
    "nvmlDeviceGetPcieLinkMaxSpeed",
    "nvmlDeviceGetPcieSpeed",
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetBrand",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetVirtualizationMode",
)
"""Beside the calls of the survey: what it could ask."""
MORE_LARGE_NUMBERS: Final = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetSupportedClocksThrottleReasons",
    "nvmlDeviceGetSupportedClocksEventReasons",
)
MORE_TEXTS: Final = ("nvmlDeviceGetSerial", "nvmlDeviceGetVbiosVersion", "nvmlDeviceGetGspFirmwareVersion")
MORE_FIELDS: Final = {"NVML_FI_DEV_NVLINK_LINK_COUNT": 91, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION": 230}


class FieldValue(Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        ("field", c_uint),
        ("scope", c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("type", c_uint),
        ("result", c_uint),
        ("value", c_ulonglong),
    )


class RecordingNvml(Nvml):
    """NVML, each call of which is written into `calls`."""

    calls: list[dict[str, Any]]

    def __init__(self, path: str = LIBRARY) -> None:
        super().__init__(path)
        type(self).calls = []

    def call(self, function: str, *arguments: object) -> None:
        code, started = 0, time.perf_counter()
        try:
            super().call(function, *arguments)
        except NvmlError as error:
            code = error.code
            raise
        finally:
            taken = time.perf_counter() - started
            call: dict[str, Any] = {"function": function, "given": given(arguments)}
            call |= {"said": said(arguments)} if not code else {"error": ERRORS.get(code, str(code)), "code": code}
            self.calls.append(call | {"microseconds": round(taken * 1e6)})


def given(arguments: tuple[object, ...]) -> list[int]:
    """The numbers among a call's arguments, which say what is asked."""
    return [each.value for each in arguments if isinstance(each, c_uint)]


def outputs(arguments: tuple[object, ...]) -> Iterator[Any]:
    """What the call writes into: numbers, structures, buffers; not the handle of a device."""
    for each in arguments:
        target = getattr(each, "_obj", each)
        if isinstance(target, ctypes.Array) or (target is not each and not isinstance(target, c_void_p)):
            yield target


def said(arguments: tuple[object, ...]) -> list[Any]:
    """What the call wrote, as JSON."""
    return [_plain(target) for target in outputs(arguments)]


def _plain(target: Any) -> Any:
    if isinstance(target, Structure):
        return {name: _plain(getattr(target, name)) for name, *_ in target._fields_}
    if isinstance(target, bytes):
        return target.decode()
    if isinstance(target, ctypes.Array):
        if isinstance(getattr(target, "value", None), bytes):
            return target.value.decode()
        return list(target) if target._type_ is c_ulonglong else bytes(target).hex()
    return getattr(target, "value", target)


def trace(library: str) -> dict[str, Any]:
    """One survey with its calls."""
    survey.Nvml = RecordingNvml  # type: ignore[misc]
    started = time.perf_counter()
    reading = survey.survey(library)
    seconds = time.perf_counter() - started
    return {"reading": reading, "seconds": round(seconds, 4), "calls": RecordingNvml.calls}


def other_calls(library: str) -> list[dict[str, Any]]:
    """Those that the survey could make and does not."""
    nvml = RecordingNvml(library)
    _quietly(nvml.call, "nvmlInit_v2")
    _quietly(nvml.number, "nvmlSystemGetCudaDriverVersion")
    for index in range(_quietly(nvml.number, "nvmlDeviceGetCount_v2") or 0):
        device = _quietly(nvml.handle, "nvmlDeviceGetHandleByIndex_v2", c_uint(index))
        if device is None:
            continue
        for function in MORE_NUMBERS:
            _quietly(nvml.number, function, device)
        for function in MORE_LARGE_NUMBERS:
            _quietly(nvml.large_number, function, device)
        for function in MORE_TEXTS:
            _quietly(nvml.text, function, device)
        for kind in (0, 1):
            _quietly(nvml.large_number, "nvmlDeviceGetTotalEccErrors", device, c_uint(kind), c_uint(1))
        for cause in (0, 1):  # how many: NVML counts them where it is given no buffer
            _quietly(nvml.call, "nvmlDeviceGetRetiredPages", device, c_uint(cause), ctypes.byref(c_uint(0)), None)
        total_free_used = (c_ulonglong * 3)()  # nvmlMemory_t, whose `used` has what the driver reserves
        _quietly(nvml.call, "nvmlDeviceGetMemoryInfo", device, ctypes.byref(total_free_used))
        for field in MORE_FIELDS.values():
            value = FieldValue(field=field)
            _quietly(nvml.call, "nvmlDeviceGetFieldValues", device, c_uint(1), ctypes.byref(value))
        for function in ("State", "Version", "RemoteDeviceType"):
            for link in (0, 17, 18):
                _quietly(nvml.number, f"nvmlDeviceGetNvLink{function}", device, c_uint(link))
        for clock in range(4):
            _quietly(nvml.number, "nvmlDeviceGetClockInfo", device, c_uint(clock))
            _quietly(nvml.number, "nvmlDeviceGetMaxClockInfo", device, c_uint(clock))
    return RecordingNvml.calls


def _quietly(ask: Callable[..., Any], *arguments: object) -> Any:
    try:
        return ask(*arguments)
    except NvmlError:
        return None


class Cuda:
    """The first GPU, for a program of CUDA."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")
        device, context = ctypes.c_int(), c_void_p()
        self.call("cuInit", c_uint(0))
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, function: str, *arguments: object) -> None:
        if code := getattr(self._library, function)(*arguments):
            raise SystemExit(f"{function}: error {code}")


def hold(mib: int) -> None:
    """Take memory of the first GPU and write to it until standard input ends."""
    call, memory, size = Cuda().call, c_ulonglong(), ctypes.c_size_t(mib << 20)
    call("cuMemAlloc_v2", ctypes.byref(memory), size)
    print("holds it", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(50):
            call("cuMemsetD8_v2", memory, ctypes.c_ubyte(1), size)
        call("cuCtxSynchronize")


_KERNEL: Final = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry bad(.param .u64 given)
{{
    .reg .b64 %address;
    .reg .b32 %value;
    ld.param.u64 %address, [given];
    add.u64 %address, %address, {offset};
    mov.u32 %value, 1;
    st.global.u32 [%address], %value;
    ret;
}}
"""
FAULTS: Final = {"an address of nobody's": (4096, 0), "an address between two words": (1, 1 << 20)}
"""What a kernel adds to the address that it is given, and how much memory there is at that: none if 0."""


def fault(name: str) -> None:
    """Run a kernel that fails: the driver ends the program, and tells of an XID that is the program's own."""
    offset, size = FAULTS[name]
    call, module, kernel, memory = Cuda().call, c_void_p(), c_void_p(), c_ulonglong()
    if size:
        call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
    call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(_KERNEL.format(offset=offset).encode()))
    call("cuModuleGetFunction", ctypes.byref(kernel), module, ctypes.c_char_p(b"bad"))
    parameters, one = (c_void_p * 1)(ctypes.addressof(memory)), c_uint(1)
    call("cuLaunchKernel", kernel, one, one, one, one, one, one, c_uint(0), None, parameters, None)
    call("cuCtxSynchronize")


class Recorder:
    """What was recorded so far is in `found`; a part that fails is written with its error."""

    def __init__(self, root: str, python: str, *, load: str | None, with_faults: bool) -> None:
        self.root = root
        self.load = load
        self.with_faults = with_faults
        self.python = python
        self.library = f"{root}/usr/lib/{LIBRARY}" if root else LIBRARY
        self.found: dict[str, Any] = {}
        self.secrets: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        """Files that are written beside the record, for a person to look at."""
        self._skipped_seconds = 0.0
        self.watch = GpuWatch(root, lambda: time.monotonic() + self._skipped_seconds, python=python)

    def run(self) -> None:
        self._part("environment", self._environment)
        self._part("surveys", self._surveys)
        self._part("idle", self._moment)
        self._part("otherCalls", self._other_calls)
        self._part("deadline", self._deadline)
        with self._held_memory() as held:
            self.found["held"] = held
            self._part("surveysWhileHeld", self._surveys)
            self._part("loaded", self._moment)
        self._part("afterwards", lambda: {"reading": self._look()})
        self._part("withoutDevices", self._without_devices)
        if self.load:
            self._part("underLoad", lambda: self._under_load(shlex.split(self.load or "")))
        for name in FAULTS if self.with_faults else ():
            self._part(f"after {name}", lambda name=name: self._after_fault(name))
        self._part("kernelLog", self._kernel_log)
        self.watch.close()

    def _part(self, name: str, record: Callable[[], Any]) -> None:
        started = time.monotonic()
        try:
            self.found[name] = record()
        except Exception as error:
            self.found[name] = {"failed": f"{type(error).__name__}: {error}"}
        print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)

    def _environment(self) -> dict[str, Any]:
        return {
            "machine": platform.machine(),
            "python": platform.python_version(),
            "hasGpus": has_gpus(self.root),
            "driverFacts": driver_facts(self.root),
            "driverVersionFile": _file(f"{self.root}/proc/driver/nvidia/version").partition("\n")[0],
            "devices": sorted(each.name for each in Path(f"{self.root}/dev").glob("nvidia*")),
            "daemons": sorted({_file(str(each)).strip() for each in Path("/proc").glob("[0-9]*/comm")} & DAEMONS),
            "nvidiaSmiNvlink": _run(["nvidia-smi", "nvlink", "-s"]),
        }

    def _surveys(self) -> list[dict[str, Any]]:
        """As the agent starts them, with what each took."""
        command = [self.python, "-I", "-m", "provisioner.node", "gpus", *(["--root", self.root] if self.root else [])]
        taken = []
        for _ in range(SURVEYS):
            started = time.monotonic()
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            each = {"status": process.returncode, "seconds": round(time.monotonic() - started, 3)}
            taken.append(each | {"cpuSeconds": round(usage.ru_utime + usage.ru_stime, 3), "maxRssKib": usage.ru_maxrss})
        return taken

    def _moment(self) -> dict[str, Any]:
        """Everything that is read, told and decided at this moment."""
        reading = self._look()
        started = time.monotonic()
        nvidia_smi = _run(["nvidia-smi", "-q", "-x"])
        nvidia_smi_seconds = round(time.monotonic() - started, 3)
        traced = self._trace()
        second = self._look()  # a slowdown counts when it is seen twice
        self._hide([gpu.get(key) for gpu in reading.get("gpus", ()) for key in ("uuid", "fabricCluster")])
        self._hide(re.findall(r"<(?:uuid|serial|pdi|chassis_serial_number|clusterUuid)>([^<]+)<", nvidia_smi))
        self.texts[f"nvidia-smi-{'loaded' if 'idle' in self.found else 'idle'}.xml"] = nvidia_smi
        return {
            "reading": reading,
            "types": {key: type(value).__name__ for gpu in reading.get("gpus", ()) for key, value in gpu.items()},
            "trace": traced,
            "errors": _errors(traced["calls"]),
            "nvidiaSmiSeconds": nvidia_smi_seconds,
            "comparison": compare(reading, nvidia_smi),
            **self._told(second),
        }

    def _other_calls(self) -> list[dict[str, Any]]:
        calls = json.loads(_run([sys.executable, "-m", __spec__.name, "--other-calls", self.library]))
        serials = [call["said"][0] for call in calls if call["function"] == "nvmlDeviceGetSerial" and "said" in call]
        self._hide(serials)
        return list(calls)

    def _told(self, reading: Mapping[str, Any]) -> dict[str, Any]:
        """Facts and verdicts of one reading. Its metrics are written last."""
        self.texts["gpus.prom"] = exposition.render(reading, self.watch.log, time.time())
        boot = BootFacts(
            server="r01-u01", mac_address="52:54:00:12:34:56", progress_url="", join_url="",
            image_digest="sha256:" + "9f" * 32, address=None, boot_id=BOOT_ID, system_uuid="",
        )  # fmt: skip
        facts = node_facts(boot, self.root, time.time(), gpu_facts(reading, self.watch.log))
        return {
            "facts": {key: facts[key] for key in GPU_PARTS if key in facts},
            "factsBytes": len(render(facts)),
            "findings": findings(facts),
        }

    def _look(self) -> dict[str, Any]:
        """The watch's next reading, without its pause between surveys."""
        self._skipped_seconds += 1000.0
        ends = time.monotonic() + LONG
        self.watch.look()
        while not self.watch.look():
            if time.monotonic() > ends:
                raise TimeoutError("the watch has no new reading")
            time.sleep(0.02)
        return dict(self.watch.reading or {})

    def _deadline(self) -> dict[str, Any]:
        """A survey that is ended while it runs, and the next one."""
        watch = GpuWatch(self.root, time.monotonic, deadline_seconds=0.05, python=self.python)
        watch.look()
        process, started = watch._process, time.monotonic()
        while not watch.look():
            time.sleep(0.01)
        reading = dict(watch.reading or {})
        status = process.wait(timeout=LONG) if process is not None else None
        seconds = round(time.monotonic() - started, 3)
        watch.close()
        return {"reading": reading, "status": status, "endedAfterSeconds": seconds, "nextState": self._look()["state"]}

    def _without_devices(self) -> list[str]:
        """A survey that finds no files of devices, in a mount namespace of its own."""
        survey_it = f"mount -t tmpfs none /dev && exec {self.python} -I -m provisioner.node gpus"
        return _run(["unshare", "--mount", "sh", "-c", survey_it]).splitlines()

    def _under_load(self, command: list[str]) -> dict[str, Any]:
        """Second by second, while a program runs that writes a line once it keeps the GPU busy."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        samples = []
        while len(samples) < LOAD_SAMPLES and process.poll() is None:
            time.sleep(1.0)
            traced = self._trace()
            reasons = [call["said"] for call in traced["calls"] if call["function"].endswith("ThrottleReasons")]
            gpu = traced["reading"]["gpus"][0]
            samples.append({"reasons": reasons[0], **{key: gpu.get(key) for key in LOAD_KEYS}})
        self._look()
        told = self._told(self._look())
        process.terminate()
        process.wait(timeout=LONG)
        return {"samples": samples, **told}

    def _trace(self) -> dict[str, Any]:
        return dict(json.loads(_run([sys.executable, "-m", __spec__.name, "--trace", self.library])))

    def _after_fault(self, name: str) -> dict[str, Any]:
        words = _run([sys.executable, "-m", __spec__.name, "--fault", name]).strip()
        reading = self._look()
        return {"said": words, "xids": list(self.watch.log.xids.values()), **self._told(reading)}

    @contextmanager
    def _held_memory(self) -> Iterator[dict[str, Any]]:
        command = [sys.executable, "-m", __spec__.name, "--hold", str(HELD_MIB)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        words = process.stdout.readline().strip()
        time.sleep(2.0 if process.poll() is None else 0.0)  # utilization is of the last second
        try:
            yield {"mib": HELD_MIB, "said": words}
        finally:
            try:
                process.communicate("\n", timeout=LONG)
            except subprocess.TimeoutExpired:
                process.kill()

    def _kernel_log(self) -> dict[str, Any]:
        log = self.watch.log
        lines = [line for line in _kernel_lines(f"{self.root}/dev/kmsg") if re.search("NVRM|nvidia", line)]
        return {
            "isReadable": log.is_readable,
            "xids": list(log.xids.values()),
            "complaints": log.complaints,
            "lineCount": len(lines),
            "lines": lines[:MOST_LOG_LINES],
        }

    def _hide(self, secrets: Iterable[str | None]) -> None:
        for each in secrets:
            if each and each not in self.secrets and sum(c.isdigit() for c in each) > 5:
                self.secrets[each] = masked(each, len(self.secrets))

    def text(self, value: str) -> str:
        """`value` without what identifies the card, and who built its driver."""
        for secret, mask in sorted(self.secrets.items(), key=lambda item: -len(item[0])):
            value = value.replace(secret, mask)
        return re.sub(r"\(\w*@[\w.-]*\)", "(builder@host)", value)


def masked(secret: str, number: int) -> str:
    """Of the same shape: digits are 0, letters a; the last two tell several apart."""
    prefix, body = (secret[:4], secret[4:]) if secret.startswith(("GPU-", "MIG-")) else ("", secret)
    shape = "".join("0" if c.isdigit() else ("a" if c.islower() else "A") if c.isalpha() else c for c in body)
    return f"{prefix}{shape[:-2]}{number:02d}"


def findings(facts: Mapping[str, Any]) -> dict[str, dict[str, list[str]]]:
    """What the checks say of these facts, for each of POOLS: reason and message."""
    known = from_json(NodeFacts, dict(facts))
    devices = sorted(each.device_id for each in known.pci if each.vendor_id == "10de" and each.class_id[:2] == "03")
    gpus = ExpectedGpus(count=len(devices) or 1, device_id=devices[0] if devices else None)
    told = {}
    for pool, asked in POOLS.items():
        settings = VerificationSettings(expected=ExpectedInventory(gpus=gpus), gpus=asked)
        told[pool] = {each.name: [each.reason, each.message] for each in check_gpus(settings, known)}
    return told


COMPARED: Final[tuple[tuple[str, str, str], ...]] = (
    ("uuid", "uuid", "text"),
    ("name", "product_name", "text"),
    ("memoryBytes", "fb_memory_usage/total", "MiB"),
    ("memoryUsedBytes", "fb_memory_usage/used", "MiB"),
    ("eccEnabled", "ecc_mode/current_ecc", "Enabled"),
    ("eccUncorrected", "ecc_errors/volatile/dram_uncorrectable", "number"),
    ("eccUncorrectedAggregate", "ecc_errors/aggregate/dram_uncorrectable", "number"),
    ("rowsRemappedCorrectable", "remapped_rows/remapped_row_corr", "number"),
    ("rowsRemappedUncorrectable", "remapped_rows/remapped_row_unc", "number"),
    ("migEnabled", "mig_mode/current_mig", "Enabled"),
    ("pcieGeneration", "pci/pci_gpu_link_info/pcie_gen/current_link_gen", "number"),
    ("pcieMaxGeneration", "pci/pci_gpu_link_info/pcie_gen/max_link_gen", "number"),
    ("pcieWidth", "pci/pci_gpu_link_info/link_widths/current_link_width", "number"),
    ("pcieMaxWidth", "pci/pci_gpu_link_info/link_widths/max_link_width", "number"),
    ("pcieReplays", "pci/replay_counter", "number"),
    ("smClockMhz", "clocks/sm_clock", "number"),
    ("smClockMaxMhz", "max_clocks/sm_clock", "number"),
    ("memoryClockMhz", "clocks/mem_clock", "number"),
    ("temperatureCelsius", "temperature/gpu_temp", "number"),
    ("powerMilliwatts", "gpu_power_readings/average_power_draw", "W"),
    ("powerLimitMilliwatts", "gpu_power_readings/current_power_limit", "W"),
    ("powerLimitDefaultMilliwatts", "gpu_power_readings/default_power_limit", "W"),
    ("fabricState", "fabric/state", "text"),
    ("fabricStatus", "fabric/status", "text"),
    ("utilizationPercent", "utilization/gpu_util", "number"),
    ("memoryUtilizationPercent", "utilization/memory_util", "number"),
)
"""A fact, where nvidia-smi has the same, and how it writes it."""
DRIFTING: Final = frozenset(
    {
        "smClockMhz",
        "memoryClockMhz",
        "pcieGeneration",
        "temperatureCelsius",
        "powerMilliwatts",
        "utilizationPercent",
        "memoryUtilizationPercent",
    }
)
"""Of these, facts that are others a moment later."""


def compare(reading: Mapping[str, Any], nvidia_smi: str) -> list[dict[str, Any]]:
    """The survey beside nvidia-smi's own words. `agrees` is None where one of them says nothing."""
    if not nvidia_smi.lstrip().startswith("<?xml"):
        return []
    compared = []
    elements = ElementTree.fromstring(nvidia_smi).findall("gpu")  # noqa: S314 (nvidia-smi's, of this machine)
    for gpu, element in zip(reading.get("gpus", ()), elements, strict=False):
        for key, path, unit in COMPARED:
            text = element.findtext(path)
            theirs, ours = _value(text, unit), gpu.get(key)
            if unit == "MiB" and ours is not None:
                ours = round(ours / (1 << 20))
            elif unit == "W" and ours is not None:
                ours = ours / 1000
            agrees = None if theirs is None or ours is None else ours == theirs
            compared.append({"fact": key, "ours": ours, "nvidiaSmi": text, "path": path, "agrees": agrees})
    return compared


def _value(text: str | None, unit: str) -> Any:
    if text is None or text in ("N/A", "[N/A]"):
        return None
    if unit == "text":
        return text
    if unit == "Enabled":
        return text == "Enabled"
    number = re.match(r"[0-9.]+", text)
    return None if number is None else float(number[0]) if unit == "W" else int(float(number[0]))


def _errors(calls: list[dict[str, Any]]) -> list[str]:
    found = [f"{call['function']}{call['given']}: {call['error']}" for call in calls if "error" in call]
    return list(dict.fromkeys(found))


def _kernel_lines(path: str) -> Iterator[str]:
    try:
        log = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return
    try:
        while record := os.read(log, 8192):
            yield from record.decode("utf-8", "replace").splitlines()
    except OSError:
        return
    finally:
        os.close(log)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    return done.stdout or done.stderr


def _file(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        return str(error)


def written(value: Any, indent: str = "") -> str:
    """JSON, one line for what fits on one."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + len(indent) <= 160 or not isinstance(value, dict | list) or not value:
        return line
    deeper = indent + " "
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {written(each, deeper)}" for key, each in value.items()]
    else:
        items = [written(each, deeper) for each in value]
    inner = f",\n{deeper}".join(items)
    return (
        f"{'{' if isinstance(value, dict) else '['}\n{deeper}{inner}\n{indent}{'}' if isinstance(value, dict) else ']'}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path())
    parser.add_argument("--root", default="", help="below which the machine is")
    parser.add_argument("--load", metavar="COMMAND", help="a program that keeps the GPU busy, and writes a line then")
    parser.add_argument("--with-faults", action="store_true", help="let programs fail on the GPU, for their XIDs")
    parser.add_argument("--fault", help=argparse.SUPPRESS)
    parser.add_argument("--other-calls", metavar="LIBRARY", help=argparse.SUPPRESS)
    parser.add_argument("--trace", metavar="LIBRARY", help=argparse.SUPPRESS)
    parser.add_argument("--hold", type=int, metavar="MIB", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.trace:
        print(json.dumps(trace(options.trace)))
        return 0
    if options.hold:
        hold(options.hold)
        return 0
    if options.fault:
        fault(options.fault)
        return 0
    if options.other_calls:
        print(json.dumps(other_calls(options.other_calls)))
        return 0
    with tempfile.TemporaryDirectory(prefix="agent-") as folder:
        recorder = Recorder(
            options.root, str(install_agent(Path(folder))), load=options.load, with_faults=options.with_faults
        )
        recorder.run()
    reading = recorder.found["idle"].get("reading", {})
    date = time.strftime("%Y-%m-%d", time.gmtime())
    gpu = (reading.get("gpus") or [{}])[0].get("name", "unknown")
    about = {"gpu": gpu, "count": reading.get("count"), "driver": reading.get("driverVersion"), "date": date}
    name = "-".join(re.sub(r"[^a-z0-9.]+", "-", str(about[key]).lower()) for key in ("gpu", "driver", "date"))
    text = recorder.text(written({"about": about | {"nvml": reading.get("libraryVersion")}, **recorder.found}))
    (options.folder / f"{name}.json").write_text(text + "\n")
    for file, words in recorder.texts.items():
        (options.folder / file).write_text(recorder.text(words))
    print(f"{name}.json: {len(text)} characters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
