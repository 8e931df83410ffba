"""What the agent writes on its Node (annotation provisioner.dev/node-facts) and what it is told (boot-intent).

Everything here was said by the machine itself, with its kubelet's certificate: root on the machine can say anything. It
is compared with what was registered to find what is broken, not to find who lies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class NicFacts:
    """A network interface. `speed_mbps` is None while it has no link."""

    name: str
    mac_address: str
    pci_address: str | None = None
    driver: str | None = None
    speed_mbps: int | None = None


@dataclass(frozen=True, kw_only=True)
class DiskFacts:
    name: str
    size_bytes: int
    model: str | None = None


@dataclass(frozen=True, kw_only=True)
class PciFacts:
    """A PCI function of a class that checks look at: GPUs (03xx and NVIDIA's 0302), InfiniBand and Ethernet (02xx)."""

    address: str
    vendor_id: str
    """Four hexadecimal digits in lower case, such as 10de."""
    device_id: str
    class_id: str
    """Four hexadecimal digits, such as 0302."""
    driver: str | None = None


@dataclass(frozen=True, kw_only=True)
class InfinibandPortFacts:
    device: str
    port: int
    state: str
    """As sysfs has it, without the number: ACTIVE, INIT, DOWN."""
    rate_gbps: int | None = None
    link_layer: str | None = None


@dataclass(frozen=True, kw_only=True)
class GpuDriverFacts:
    """NVIDIA's driver, as the agent's survey found it.

    Strings are those of the agent's version, and may be others tomorrow: whoever reads them has words for what it does
    not know.
    """

    state: str
    """Ready, Looking (the first survey runs), NoLibrary, NotLoaded, VersionMismatch, Hung, Crashed or Failed."""
    message: str | None = None
    count: int | None = None
    """GPUs that NVML counts, the lost ones that it still knows included."""
    driver_version: str | None = None
    library_version: str | None = None
    module_loaded: bool | None = None
    module_installed: bool | None = None
    """Whether the image has the module for the kernel that runs."""
    module_version: str | None = None
    switches: int | None = None
    """NVSwitches on PCI; none where NVLink's switches are not of this machine, or look like network cards (B200)."""
    fabric_manager_version: str | None = None
    """None where the image has no fabricmanager."""
    fabric_manager_state: str | None = None
    """As `systemctl is-active` says it."""
    kernel_messages: tuple[str, ...] = ()
    """The first few complaints of the driver in the kernel log that are no XIDs."""
    kernel_log_unreadable: bool | None = None
    xids_left_out: bool | None = None
    xids_unread: tuple[str, ...] = ()
    """The first few lines of the kernel log that look like an XID or SXid, and could not be read."""


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """A GPU, as NVML knows it. What it does not say is None. `error`: NVML's name of why nothing more is said."""

    uuid: str | None = None
    pci_address: str | None = None
    name: str | None = None
    error: str | None = None
    memory_mib: int | None = None
    ecc_enabled: bool | None = None
    ecc_uncorrected: int | None = None
    """Since the driver loaded."""
    ecc_uncorrected_aggregate: int | None = None
    """Since the GPU was made."""
    rows_remapped_uncorrectable: int | None = None
    row_remapping: str | None = None
    """Settled, Pending (a reset is needed) or Failed."""
    pages_retired_pending: bool | None = None
    """Of GPUs that retire pages instead of remapping rows."""
    nvlinks_active: int | None = None
    nvlinks_inactive: tuple[int, ...] = ()
    fabric_state: str | None = None
    """NotStarted, InProgress, Completed; None where the GPU belongs to no fabric."""
    fabric_status: int | None = None
    """nvmlReturn_t of the registration, once it is Completed: 0 is well."""
    fabric_clique: int | None = None
    fabric_cluster: str | None = None
    fabric_faults: tuple[str, ...] = ()
    pcie_width: int | None = None
    pcie_max_width: int | None = None
    pcie_max_generation: int | None = None
    """That GPU and slot can do both: an idle link may run slower, and is no fault."""
    power_limit_watts: int | None = None
    power_limit_default_watts: int | None = None
    sm_clock_max_mhz: int | None = None
    slowdowns: tuple[str, ...] = ()
    """HwSlowdown, SwThermal, HwThermal, HwPowerBrake, where they lasted."""
    mig_enabled: bool | None = None


@dataclass(frozen=True, kw_only=True)
class GpuXidFacts:
    """An error that the driver wrote to the kernel log, of this boot. `count`: its lines; `time`: of the first.

    kind: SXid for one of an NVSwitch. severity: Fatal or Nonfatal, where the line says it and it matters.
    """

    address: str
    xid: int
    count: int = 1
    time: str | None = None
    kind: str | None = None
    severity: str | None = None


@dataclass(frozen=True, kw_only=True)
class ObservedFault:
    """A fault as a source reports it; the agent writes those of the kernel log and of counters into its Node's facts.

    Source, component, severity and code are those of `provisioner.api.servers.faults.FaultRecord`. What a machine wrote
    may be anything: `provisioner.health.faults` normalises it.
    """

    source: str
    component: str
    device: str = ""
    code: str
    severity: str
    count: int | None = None
    """How often in this boot; None for a state, which is there or not."""
    evidence: str = ""
    time: str | None = None
    """By the node's clock: shown, and nothing is decided on it."""


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What the agent of one boot found. Times are RFC 3339; `format` is 1."""

    format: int
    boot_id: str
    image_digest: str
    time: str
    vendor: str | None = None
    product: str | None = None
    cpus: int
    memory_bytes: int
    nics: tuple[NicFacts, ...] = ()
    disks: tuple[DiskFacts, ...] = ()
    pci: tuple[PciFacts, ...] = ()
    infiniband_ports: tuple[InfinibandPortFacts, ...] = ()
    clock_synchronized: bool | None = None
    root_free_bytes: int | None = None
    kubelet_active: bool | None = None
    runtime_active: bool | None = None
    kexec_supported: bool | None = None
    kexec_reason: str | None = None
    numa_alignment: str | None = None
    """What came of NodePool.spec.kubelet.numaAlignment, in words; None where the pool does not ask for it."""
    gpu_driver: GpuDriverFacts | None = None
    """None where there is no GPU of NVIDIA's, or the image's agent is older than this."""
    gpus: tuple[GpuFacts, ...] = ()
    gpu_xids: tuple[GpuXidFacts, ...] = ()
    faults: tuple[ObservedFault, ...] = ()
    """Of the kernel log beyond NVIDIA's drivers, and of network and InfiniBand counters."""
    faults_left_out: bool | None = None
    """Whether there were more than are kept."""


IntentAction = Literal["Stage", "Kexec", "Reboot"]
ReportState = Literal["Staging", "Staged", "Failed", "Rebooting"]


@dataclass(frozen=True, kw_only=True)
class BootIntent:
    """What the agent shall do. It obeys Kexec and Reboot only in the boot `boot_id_before`, so never twice."""

    id: str
    action: IntentAction
    boot_id_before: str
    image: str
    image_digest: str
    kernel_arguments: tuple[str, ...] = ()
    """Those of the Image and the NodePool; the agent keeps the server's own of its running command line."""


@dataclass(frozen=True, kw_only=True)
class BootReport:
    """What the agent did about the intent of that id."""

    id: str
    state: ReportState
    image_digest: str
    boot_id: str
    message: str
    time: str
    next_request_key_sha256: str | None = None
    """With state Rebooting by kexec: SHA-256 of the request key that only the system that is started next knows."""
    next_hand_over_sha256: str | None = None
    """With state Rebooting by kexec: by what the agent extends PCR 14 before it starts the next system;
    provisioner/node/tpm/hand_over.py says how it is made up."""
