"""What each fault means, and what a person does about it, by component and code. XIDs: `health/checks/gpu/xids.py`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from provisioner.health.checks.gpu.xids import XIDS, Action


@dataclass(frozen=True)
class FaultMeaning:
    """meaning: a noun phrase. remedy: what to do."""

    meaning: str
    remedy: str


_M: Final = FaultMeaning
_NOTHING: Final = "nothing, unless it comes often"
_DIMM: Final = "replace the memory module; the BMC's event log names its slot"
_RESEAT: Final = "reseat the card, riser or cable; replace the device if it comes back"
_REBOOT: Final = "reboot the server, and report the kernel's messages (on the node: dmesg) if it comes back"
_REIMAGE: Final = (
    "drain and reboot the server: its file systems are in RAM, or are made anew; replace the disk if it comes back"
)
_DISK: Final = "look at the disk (on the node: nvme smart-log, smartctl -a) and replace it if errors go on"
_CABLE: Final = "look at cable, module and switch port; replace what is bad"
_JOURNAL: Final = "on the node: systemctl status kubelet containerd; journalctl -u kubelet -u containerd"
_DRIVER: Final = "kubectl provision why NODE names the check GPUDriver; on the node: dmesg | grep -iE 'nvrm|nvidia'"
_POWER_CYCLE: Final = "power-cycle the server; reseat or replace the GPU if it comes back"
_REPLACE_GPU: Final = "have the GPU tested (dcgmi diag -r 4) and replaced"
_TOOL: Final = "kubectl describe node shows the condition; the tool that sets it has the details"

CATALOGUE: Final[dict[tuple[str, str], FaultMeaning]] = {
    ("CPU", "CorrectedMachineCheck"): _M("corrected error of processor or memory", _NOTHING),
    ("CPU", "UncorrectedMachineCheck"): _M(
        "uncorrected error of processor or memory", "look at the BMC's event log; replace processor or memory module"
    ),
    ("CPU", "DeferredHardwareError"): _M("uncorrected data that nobody has used yet", _DIMM),
    ("CPU", "UncorrectedHardwareError"): _M(
        "uncorrected error of processor or memory", "look at the BMC's event log; replace processor or memory module"
    ),
    ("Memory", "CorrectedMemoryError"): _M("corrected error of a memory module", f"{_NOTHING}; then {_DIMM}"),
    ("Memory", "UncorrectedMemoryError"): _M("uncorrected error of a memory module", _DIMM),
    ("Memory", "MemoryFailureRecovered"): _M("a page of bad memory was taken out of use", _DIMM),
    ("Memory", "MemoryFailure"): _M("a page of bad memory could not be taken out of use", f"reboot, and {_DIMM}"),
    ("Memory", "SystemOOM"): _M(
        "the whole system ran out of memory, and a process was killed",
        "see what used the memory (on the node: dmesg); set memory limits of pods, or reserve more for the system",
    ),
    ("System", "FirmwareCorrectedError"): _M("firmware reported a corrected hardware error", _NOTHING),
    ("System", "FirmwareRecoverableError"): _M(
        "firmware reported an uncorrected hardware error that the system survived", "look at the BMC's event log"
    ),
    ("System", "FirmwareFatalError"): _M(
        "firmware reported a fatal hardware error, of this boot or the one before", "look at the BMC's event log"
    ),
    ("System", "FaultsLeftOut"): _M(
        "the node reports more faults than there is room for", "on the node: dmesg; the records shown are the worst"
    ),
    ("System", "KernelLogUnreadable"): _M(
        "the agent cannot read the kernel log", "on the node: ls -l /dev/kmsg; journalctl -u provisioner-node"
    ),
    ("PCIe", "AERCorrected"): _M("corrected PCIe error", _NOTHING),
    ("PCIe", "AERNonFatal"): _M("uncorrected PCIe error, which the link survived", _RESEAT),
    ("PCIe", "AERFatal"): _M("fatal PCIe error: the link was reset", _RESEAT),
    ("PCIe", "AERRecoveryFailed"): _M(
        "a device did not recover from a PCIe error", f"power-cycle the server; {_RESEAT}"
    ),
    ("PCIe", "DownstreamPortContainment"): _M("a PCIe port cut its device off after an error", _RESEAT),
    ("PCIe", "LinkDown"): _M("the link of a PCIe slot went down", _RESEAT),
    ("PCIe", "CardNotPresent"): _M("the card of a PCIe slot is gone", _RESEAT),
    ("Disk", "NVMeControllerDown"): _M("an NVMe controller stopped and was reset", _DISK),
    ("Disk", "NVMeTimeout"): _M("an NVMe command timed out", _DISK),
    ("Disk", "NVMeNotReady"): _M("an NVMe controller did not become ready", _DISK),
    ("Disk", "NVMeRemoved"): _M("an NVMe controller failed its reset and was removed", "power-cycle; replace the disk"),
    ("Disk", "DiskIOError"): _M("a read or write failed", _DISK),
    ("Disk", "DiskMediumError"): _M("a block cannot be read", _DISK),
    ("Disk", "DiskTargetError"): _M("the disk refused a command", _DISK),
    ("Filesystem", "Ext4Error"): _M("an ext4 file system is damaged", _REIMAGE),
    ("Filesystem", "ReadOnly"): _M("a file system became read-only after an error", _REIMAGE),
    ("Filesystem", "XfsShutdown"): _M("an XFS file system shut down after an error", _REIMAGE),
    ("Filesystem", "XfsError"): _M("an XFS file system is damaged", _REIMAGE),
    ("Filesystem", "BtrfsError"): _M("a btrfs file system is damaged", _REIMAGE),
    ("Filesystem", "SquashfsError"): _M(
        "a squashfs cannot be read: a layer of the root, or an image that a user mounted",
        "reboot the server if it is the root; else look at the user's image",
    ),
    ("Kernel", "SoftLockup"): _M("a processor was stuck in the kernel for more than 20 s", _REBOOT),
    ("Kernel", "HardLockup"): _M("a processor was stuck with interrupts off", _REBOOT),
    ("Kernel", "HungTask"): _M(
        "a process waited in the kernel for minutes, mostly for a disk or a network file system",
        "see what it waited for (on the node: dmesg); then reboot the server",
    ),
    ("Kernel", "RCUStall"): _M("a processor did not answer the kernel's RCU for long", _REBOOT),
    ("Kernel", "KernelBug"): _M("the kernel met a state that must not be", _REBOOT),
    ("Kernel", "KernelOops"): _M("the kernel made an invalid access", _REBOOT),
    ("Kernel", "BadPage"): _M("the kernel's records of memory are damaged", f"{_REBOOT}; then have the memory tested"),
    ("NIC", "FirmwareFault"): _M("a network card's firmware failed", "power-cycle; update its firmware or replace it"),
    ("NIC", "HighTemperature"): _M("a network card is too hot", "look at fans, airflow and inlet temperature"),
    ("NIC", "InsufficientPower"): _M("a network card gets too little power from its slot", "look at slot and riser"),
    ("NIC", "ModuleError"): _M("a cable or module of a network card has an error", _CABLE),
    ("NIC", "CableUnplugged"): _M("a cable was pulled, or its module failed", _CABLE),
    ("NIC", "TransmitTimeout"): _M(
        "a network card stopped sending", "look at its firmware; replace it if it comes back"
    ),
    ("NIC", "LinkFlapping"): _M("the link of a network card came and went", _CABLE),
    ("InfiniBand", "LinkDowned"): _M("an InfiniBand link went down several times", _CABLE),
    ("InfiniBand", "SymbolErrors"): _M("many symbol errors on an InfiniBand link", _CABLE),
    ("InfiniBand", "LinkErrorRecovery"): _M("an InfiniBand link was retrained several times", _CABLE),
    ("GPU", "GPULost"): _M("NVML says that the GPU is lost", _POWER_CYCLE),
    ("GPU", "GPUBroken"): _M("the GPU answers NVML with an error", _POWER_CYCLE),
    ("GPU", "RowRemappingFailed"): _M("a bad row of the GPU's memory could not be remapped", _REPLACE_GPU),
    ("GPU", "RowRemappingPending"): _M("a bad row of the GPU's memory waits for a reset", "reboot the server"),
    ("GPU", "UncorrectedErrors"): _M(
        "uncorrected errors of the GPU's memory", f"reboot the server; then {_REPLACE_GPU}"
    ),
    ("GPU", "DriverHung"): _M("the GPU driver does not answer", _POWER_CYCLE),
    ("GPU", "DriverCrashed"): _M("the survey of the GPUs crashed in the driver's library", _DRIVER),
    ("GPU", "DriverFailed"): _M("the GPU driver's library cannot be used", _DRIVER),
    ("GPU", "DriverNotLoaded"): _M("the GPU driver is not loaded, or does not start", _DRIVER),
    ("GPU", "DriverNoLibrary"): _M("the image lacks the GPU driver's library", _DRIVER),
    ("GPU", "DriverVersionMismatch"): _M("the GPU driver's module and library have different versions", _DRIVER),
    ("Kubelet", "NodeUnreachable"): _M(
        "the kubelet no longer reports: the machine is dead, hung or cut off",
        "look at its console and network; reboot it",
    ),
    ("Kubelet", "NodeNotReady"): _M("the kubelet reports that the node is not ready", _JOURNAL),
    ("Kubelet", "KubeletInactive"): _M("the kubelet does not run", _JOURNAL),
    ("ContainerRuntime", "RuntimeInactive"): _M("the container runtime does not run", _JOURNAL),
    ("Clock", "ClockNotSynchronized"): _M(
        "the clock is not synchronized", "check the rack's ntpServers (on the node: timedatectl timesync-status)"
    ),
}

_XID: Final = re.compile(r"(S?)XID(\d{1,9})")


def meaning_of(component: str, code: str, source: str = "") -> FaultMeaning:
    """What is known of a fault; also of one that is not known."""
    if found := CATALOGUE.get((component, code)):
        return found
    if named := _XID.fullmatch(code):
        return _of_xid(int(named[2]), is_switch=bool(named[1]))
    if source == "NodeCondition":
        return FaultMeaning(f"condition {code} is True", _TOOL)
    return FaultMeaning("not known to this version", "read the evidence; a newer controller may know the code")


def _of_xid(number: int, *, is_switch: bool) -> FaultMeaning:
    if is_switch:
        return FaultMeaning("an NVSwitch reported an error", Action.NVLINK.remedy)
    if known := XIDS.get(number):
        return FaultMeaning(known.meaning, known.action.remedy)
    return FaultMeaning("an XID that this version does not know", "look it up in NVIDIA's catalogue of XIDs")
