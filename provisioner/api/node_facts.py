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
