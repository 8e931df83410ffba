"""Which lines of the kernel log are faults of the machine. Lines of NVIDIA's drivers are read by `gpus/kernel_log.py`.

Formats are those of Linux 5.15 to 6.12 (drivers/edac, arch/x86/kernel/cpu/mce, drivers/firmware/efi/cper.c,
drivers/pci/pcie, drivers/nvme/host, block/blk-core.c, fs/ext4, fs/xfs, fs/btrfs, fs/squashfs, mm/oom_kill.c,
mm/memory-failure.c, kernel/watchdog.c, kernel/hung_task.c, kernel/rcu, drivers/net/ethernet/mellanox/mlx5,
net/sched/sch_generic.c).

A line may contain text that a user chose: the name of a process (15 characters) at its beginning or in the middle, and
the name of a mapped file. So each pattern begins at the start of the line, and fixes more than 15 characters before
anything that is free; lines that begin with a process and its id are left out as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

INFO, DEGRADED, CRITICAL = "Info", "Degraded", "Critical"


class Found(NamedTuple):
    """A fault that one line tells of. errors: how many the line stands for."""

    component: str
    code: str
    severity: str
    device: str = ""
    errors: int = 1


class _Pattern(NamedTuple):
    """Named groups of `line`: device, errors, status; kind, by which `kinds` have code and severity."""

    component: str
    code: str
    severity: str
    line: re.Pattern[str]
    kinds: Mapping[str, tuple[str, str]] = MappingProxyType({})


_OF_PROCESS = re.compile(r".{1,60}?\[\d{1,10}\](?:$|:| )")
"""`NAME[PID]: segfault at …`, `NAME[PID]: …` of a service: a kernel writes up to 15 bytes of NAME, each as up to 4."""
_PCI = r"(?P<device>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_DEVICE = r"(?P<device>[A-Za-z0-9_.!:/-]{1,32})"
_NOT_OURS = r"(?!loop|ram|zram|fd|sr|nbd|rbd|drbd)"
"""A user's image file may be damaged, or too short; what is elsewhere is no disk of the server."""
_FILE_SYSTEM = rf"(?P<device>{_NOT_OURS}[A-Za-z0-9_.!/-]{{1,32}})"
_BTRFS = rf"\(device {_FILE_SYSTEM}(?:: state \w{{1,8}})?\)"
_MLX5 = rf"mlx5_core {_PCI}: (?:\w{{1,64}}:\d{{1,6}}:\(pid \d{{1,10}}\): )?"
_MOST_ERRORS = 1_000_000
_UNCORRECTED_BIT = 61
"""UC of MCi_STATUS. Source: Intel SDM 3B, "IA32_MCi_STATUS MSRs"; AMD APM 2, "Machine Check Architecture"."""


def _rows() -> list[_Pattern]:
    rows: list[_Pattern] = []

    def row(component: str, code: str, severity: str, line: str, **kinds: tuple[str, str]) -> None:
        rows.append(_Pattern(component, code, severity, re.compile(line), kinds))

    # Processor and memory. AMD's decoder writes a second, worded line for each machine check.
    row(
        "CPU",
        "MachineCheck",
        INFO,
        r"(?:mce: )?\[Hardware Error\]: CPU (?P<device>\d{1,5}): Machine Check(?: Exception)?: [0-9a-f]{1,16} "
        r"Bank \d{1,3}: (?P<status>[0-9a-f]{16})",
    )
    row("CPU", "DeferredHardwareError", DEGRADED, r"\[Hardware Error\]: Deferred error, no action required\.")
    row(
        "CPU",
        "UncorrectedHardwareError",
        CRITICAL,
        r"\[Hardware Error\]: (?:System Fatal error|Uncorrected, software (?:restartable|containable) error)\.",
    )
    row(
        "Memory",
        "",
        "",
        r"EDAC MC\d{1,3}: (?P<errors>\d{1,9}) (?P<kind>CE|UE) (?:.{1,120}? )?on (?P<device>[^ ()]{1,64})[^()]{0,200} "
        r"\(.{0,120}?page:0x",
        CE=("CorrectedMemoryError", INFO),
        UE=("UncorrectedMemoryError", CRITICAL),
    )
    row(
        "Memory",
        "",
        "",
        r"Memory failure: 0x[0-9a-f]{1,16}: recovery action for .{1,60}: "
        r"(?P<kind>Recovered|Failed|Ignored|Delayed)$",
        Recovered=("MemoryFailureRecovered", DEGRADED),
        Failed=("MemoryFailure", CRITICAL),
        Ignored=("MemoryFailure", CRITICAL),
        Delayed=("MemoryFailure", DEGRADED),
    )
    row(
        "System",
        "",
        "",
        r"(?:\{\d{1,9}\})?\[Hardware Error\]: event severity: (?P<kind>corrected|recoverable|fatal)$",
        corrected=("FirmwareCorrectedError", INFO),
        recoverable=("FirmwareRecoverableError", DEGRADED),
        fatal=("FirmwareFatalError", CRITICAL),
    )
    # Only of the whole machine: a cgroup's OOM ("Memory cgroup out of memory") ends a user's program at its own limit.
    row("Memory", "SystemOOM", DEGRADED, r"oom-kill:constraint=CONSTRAINT_NONE,nodemask=")
    # PCIe. "AER: Corrected error received" announces the line that is counted here.
    row(
        "PCIe",
        "",
        "",
        rf"\w[\w-]{{0,31}} {_PCI}: (?:AER: )?PCIe Bus Error: severity="
        r"(?P<kind>Correct|Uncorrect(?:ed|able) \(Non-Fatal\)|Uncorrect(?:ed|able) \(Fatal\))(?:ed|able)?, type=",
        **{
            "Correct": ("AERCorrected", INFO),
            "Uncorrected (Non-Fatal)": ("AERNonFatal", DEGRADED),
            "Uncorrectable (Non-Fatal)": ("AERNonFatal", DEGRADED),
            "Uncorrected (Fatal)": ("AERFatal", CRITICAL),
            "Uncorrectable (Fatal)": ("AERFatal", CRITICAL),
        },
    )
    row("PCIe", "AERRecoveryFailed", CRITICAL, rf"pcieport {_PCI}: AER: device recovery failed$")
    row("PCIe", "DownstreamPortContainment", CRITICAL, rf"pcieport {_PCI}: DPC: containment event, status:0x")
    row("PCIe", "LinkDown", CRITICAL, rf"pcieport {_PCI}: pciehp: Slot\([\w-]{{1,16}}\): Link Down$")
    row("PCIe", "CardNotPresent", CRITICAL, rf"pcieport {_PCI}: pciehp: Slot\([\w-]{{1,16}}\): Card not present$")
    # Disks.
    row(
        "Disk", "NVMeControllerDown", DEGRADED, r"nvme (?P<device>nvme\d{1,4}): controller is down; will reset: CSTS=0x"
    )
    row(
        "Disk",
        "NVMeTimeout",
        DEGRADED,
        r"nvme (?P<device>nvme\d{1,4}): I/O (?:tag )?\d{1,9} (?:\(\w{1,8}\) )?(?:opcode (?:0x)?[0-9a-f]{1,4} )?"
        r"(?:\([\w/ -]{1,32}\) )?QID \d{1,5} timeout",
    )
    row("Disk", "NVMeNotReady", DEGRADED, r"nvme (?P<device>nvme\d{1,4}): Device not ready; aborting \w{1,32}, CSTS=0x")
    row(
        "Disk",
        "NVMeRemoved",
        CRITICAL,
        r"nvme (?P<device>nvme\d{1,4}): (?:Removing after probe failure status|"
        r"Disabling device after reset failure): -",
    )
    # A disk that refuses to discard (0x3) or to write zeroes (0x9) has no fault.
    row(
        "Disk",
        "",
        "",
        r"(?:blk_update_request: )?(?P<kind>I/O|critical medium|critical target) error, "
        rf"dev (?P<device>{_NOT_OURS}[a-z0-9!]{{1,32}}), sector \d{{1,20}} op 0x(?![39]:)",
        **{
            "I/O": ("DiskIOError", DEGRADED),
            "critical medium": ("DiskMediumError", DEGRADED),
            "critical target": ("DiskTargetError", DEGRADED),
        },
    )
    # File systems.
    row(
        "Filesystem",
        "Ext4Error",
        DEGRADED,
        rf"EXT4-fs error \(device {_FILE_SYSTEM}\)(?:: \w{{1,64}}:\d{{1,6}}: | in \w)",
    )
    row("Filesystem", "ReadOnly", CRITICAL, rf"EXT4-fs \({_FILE_SYSTEM}\): Remounting filesystem read-only$")
    row(
        "Filesystem",
        "XfsShutdown",
        CRITICAL,
        rf"XFS \({_FILE_SYSTEM}\): (?:(?:Corruption of|Metadata I/O Error|Log I/O [Ee]rror|I/O Error)"
        r".{1,200}Shutting down filesystem|Filesystem has been shut down due to )",
    )
    row(
        "Filesystem",
        "XfsError",
        DEGRADED,
        rf"XFS \({_FILE_SYSTEM}\): (?:Metadata (?:corruption|CRC error) detected at \w|metadata I/O error in \W?\w)",
    )
    row("Filesystem", "ReadOnly", CRITICAL, rf"BTRFS \w{{1,16}} {_BTRFS}: forced readonly$")
    row("Filesystem", "BtrfsError", DEGRADED, rf"BTRFS (?:error|critical) {_BTRFS}: ")
    row("Filesystem", "BtrfsError", DEGRADED, rf"BTRFS: error {_BTRFS} in \w{{1,64}}:\d{{1,6}}: ")
    # Degraded, though the root is one: a user may mount images of squashfs of his own (Apptainer).
    row(
        "Filesystem",
        "SquashfsError",
        DEGRADED,
        r"SQUASHFS error: (?:Unable to read|Failed to read|\w{1,16} decompression failed)",
    )
    # The kernel.
    row("Kernel", "SoftLockup", DEGRADED, r"watchdog: BUG: soft lockup - CPU#\d{1,5} stuck for \d{1,9}s! \[")
    row(
        "Kernel",
        "HardLockup",
        CRITICAL,
        r"(?:NMI )?watchdog: (?:CPU\d{1,5}: )?Watchdog detected hard LOCKUP on cpu \d{1,5}",
    )
    row("Kernel", "HungTask", DEGRADED, r"INFO: task .{1,64}:\d{1,10} blocked for more than \d{1,9} seconds\.")
    row(
        "Kernel",
        "RCUStall",
        DEGRADED,
        r"rcu: INFO: rcu_\w{1,32} (?:self-detected stall on CPU|detected (?:expedited )?stalls on CPUs/tasks)",
    )
    row("Kernel", "KernelBug", CRITICAL, r"kernel BUG at [\w./-]{1,120}:\d{1,6}!$")
    row(
        "Kernel",
        "KernelOops",
        CRITICAL,
        r"(?:Oops: Oops|Oops|Oops: general protection fault[\w ,-]{0,80}|general protection fault[\w ,-]{0,80}|"
        r"(?:Oops: )?divide error|(?:Oops: )?stack segment|Internal error: [\w ,-]{1,80}): [0-9a-f]{1,16} \[#\d{1,5}\] "
        r"(?:SMP|PREEMPT)",
    )
    row("Kernel", "BadPage", DEGRADED, r"BUG: Bad (?:page state in process|page map in process|rss-counter state mm:)")
    # Network cards. The driver writes severity 0 (emergency) to 7 (debug); 5 and above need nobody.
    row(
        "NIC",
        "FirmwareFault",
        CRITICAL,
        rf"{_MLX5}(?:Health issue observed, .{{1,100}}, severity\([0-4]\)|Fatal error \d{{1,5}} detected|"
        r"device's health compromised - reached miss count)",
    )
    row("NIC", "HighTemperature", DEGRADED, rf"{_MLX5}High temperature on sensors with bit set ")
    row("NIC", "InsufficientPower", DEGRADED, rf"{_MLX5}Detected insufficient power on the PCIe slot ")
    row("NIC", "ModuleError", DEGRADED, rf"{_MLX5}Port module event\[error\]: module \d{{1,3}}, ")
    row("NIC", "CableUnplugged", INFO, rf"{_MLX5}Port module event: module \d{{1,3}}, Cable unplugged$")
    row(
        "NIC",
        "TransmitTimeout",
        DEGRADED,
        rf"NETDEV WATCHDOG: {_DEVICE} \([\w-]{{0,32}}\): transmit queue \d{{1,5}} timed out",
    )
    row(
        "NIC",
        "TransmitTimeout",
        DEGRADED,
        rf"\w[\w-]{{0,31}} [0-9a-f]{{4,8}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7] {_DEVICE}: NETDEV WATCHDOG: "
        r"CPU: \d{1,5}: transmit queue \d{1,5} timed out",
    )
    return rows


_PATTERNS = _rows()
_HEADS = re.compile(
    rb"mce: \[|\[Hardware Error|\{\d{1,9}\}\[Hardware|EDAC MC|Memory failure: |oom-kill:|[\w-]{1,32} [0-9a-f]{4,8}:|"
    rb"nvme nvme|blk_update_request: |I/O error, |critical |EXT4-fs |XFS \(|BTRFS|SQUASHFS |watchdog: |NMI watchdog: |"
    rb"INFO: task |rcu: INFO|kernel BUG |Oops: |general pro|divide err|stack seg|Internal err|BUG: Bad |NETDEV W"
)
"""How lines begin that are looked at: a storm of others costs one comparison a line."""


def read_line(line: bytes) -> Found | None:
    """The fault that a line of the kernel log tells of; None for all others. Pure."""
    if not _HEADS.match(line):
        return None
    text = line.decode("utf-8", "replace")
    if _OF_PROCESS.match(text):
        return None
    for pattern in _PATTERNS:
        if found := pattern.line.match(text):
            return _read(pattern, found.groupdict())
    return None


def _read(pattern: _Pattern, said: dict[str, Any]) -> Found:
    code, severity = pattern.code, pattern.severity
    if "kind" in said:
        code, severity = pattern.kinds[said["kind"]]
    device = said.get("device") or ""
    if "status" in said:
        uncorrected = int(said["status"], 16) >> _UNCORRECTED_BIT & 1
        code, severity = ("UncorrectedMachineCheck", CRITICAL) if uncorrected else ("CorrectedMachineCheck", INFO)
        device = f"cpu{device}"
    errors = min(max(int(said.get("errors") or 1), 1), _MOST_ERRORS)
    return Found(pattern.component, code, severity, device, errors)
