"""A virtual server: what it is, and the QEMU command line that makes it. Pure; it says which traps it avoids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from lab.machine import nvram
from provisioner.api.machinery.values import MacAddress
from provisioner.api.servers.server import Architecture

Firmware = Literal["BIOS", "UEFI"]
Accelerator = Literal["kvm", "tcg"]
BootSource = Literal["Pxe", "UefiHttp", "Hdd"]


@dataclass(frozen=True, kw_only=True)
class Board:
    """What QEMU calls a machine of an architecture, and its UEFI firmware in the tools' chroot."""

    emulator: str
    machine: str
    processor: str
    """The model that is emulated; under KVM it is this machine's own."""
    firmware: str
    variables: str
    tpm: str
    """The interface of its TPM."""


BOARDS: Final[dict[Architecture, Board]] = {
    "x86_64": Board(
        emulator="qemu-system-x86_64",
        machine="q35,graphics=off",
        # With cx16 Linux 6.12 sometimes double-faults in SLUB under emulation.
        processor="qemu64,-cx16",
        firmware="/usr/share/OVMF/OVMF_CODE_4M.fd",
        variables="/usr/share/OVMF/OVMF_VARS_4M.fd",
        tpm="tpm-crb",
    ),
    "arm64": Board(
        emulator="qemu-system-aarch64",
        machine="virt",
        # AAVMF offers no network boot on a cortex-a72; to emulate pointer authentication takes half of all time.
        processor="max,pauth=off",
        firmware="/usr/share/AAVMF/AAVMF_CODE.no-secboot.fd",
        variables="/usr/share/AAVMF/AAVMF_VARS.fd",
        tpm="tpm-tis-device",
    ),
}
IPXE_ROM: Final = "/usr/share/qemu/pxe-virtio.rom"
EMULATED_KERNEL_ARGUMENTS: Final = ("no_timer_check",)
"""An emulated timer misses ticks on a busy host, and the kernel's test of it then panics."""


@dataclass(frozen=True, kw_only=True)
class MachineSpec:
    """A diskless server. `name` also names its files and its tap. A BIOS is there for x86-64 alone."""

    name: str
    architecture: Architecture = "x86_64"
    firmware: Firmware
    mac: MacAddress
    uuid: str
    serial: str
    memory_mib: int = 1024
    cpus: int = 2
    manufacturer: str = "Provisioner"
    product: str = "Virtual Server"
    host_port_mac: MacAddress | None = None
    """Of a second NIC, which leads to its host, of a DPU through which that boots."""
    has_tpm: bool = True
    """A TPM 2.0 (swtpm.py)."""
    boot_attempts: int = 1
    """How often UEFI tries the network before it gives up; each takes about a minute when nobody answers."""


@dataclass(frozen=True, kw_only=True)
class BootPlan:
    """What the firmware is to boot from, this once or always; `http_boot_uri` only with UefiHttp."""

    source: BootSource
    http_boot_uri: str | None = None


NETWORK_BOOT: Final = BootPlan(source="Pxe")
"""What a diskless machine does when nobody told it anything."""


@dataclass(frozen=True, kw_only=True)
class MachineFiles:
    """Where a machine's sockets, logs and variables lie: one directory each."""

    directory: Path

    @property
    def qmp_socket(self) -> Path:
        return self.directory / "qmp.sock"

    @property
    def console_socket(self) -> Path:
        return self.directory / "console.sock"

    @property
    def console_log(self) -> Path:
        return self.directory / "console.log"

    @property
    def variables(self) -> Path:
        return self.directory / "efi-variables.fd"

    @property
    def qemu_log(self) -> Path:
        return self.directory / "qemu.log"

    @property
    def tpm_state(self) -> Path:
        """What the TPM keeps without power: seeds, keys, counters, NVRAM."""
        return self.directory / "tpm"

    @property
    def tpm_certificates(self) -> Path:
        return self.directory / "tpm-certificates"

    @property
    def tpm_socket(self) -> Path:
        return self.directory / "tpm.sock"

    @property
    def tpm_pid(self) -> Path:
        return self.directory / "tpm.pid"

    @property
    def tpm_log(self) -> Path:
        return self.directory / "tpm.log"


def qemu_command(
    spec: MachineSpec,
    plan: BootPlan,
    files: MachineFiles,
    *,
    tap: str,
    accelerator: Accelerator,
    host_port_tap: str | None = None,
) -> list[str]:
    """QEMU's arguments, as run inside the tools' chroot. `host_port_tap`: of the second NIC, if it has one."""
    return [
        BOARDS[spec.architecture].emulator,
        *("-name", spec.name, "-nodefaults", "-no-user-config", "-display", "none"),
        *processors(accelerator, spec.cpus, spec.architecture),
        *("-m", f"{spec.memory_mib}M"),
        *("-uuid", spec.uuid),
        *(
            "-smbios",
            _options(
                "type=1",
                manufacturer=spec.manufacturer,
                product=spec.product,
                serial=spec.serial,
                uuid=spec.uuid,
            ),
        ),
        *("-rtc", "base=utc"),
        *("-device", "virtio-rng-pci,addr=3"),
        # The log is appended to by QEMU itself, whoever listens at the socket.
        *(
            "-chardev",
            _options(
                "socket,id=console,server=on,wait=off,logappend=on",
                path=str(files.console_socket),
                logfile=str(files.console_log),
            ),
        ),
        *("-serial", "chardev:console"),
        *("-qmp", _options("unix:" + _escape(str(files.qmp_socket)) + ",server=on,wait=off")),
        *("-netdev", _options("tap,id=net0", ifname=tap, script="no", downscript="no")),
        *(_host_port(spec.host_port_mac, host_port_tap) if spec.host_port_mac and host_port_tap else ()),
        *(_tpm(spec, files) if spec.has_tpm else ()),
        *_firmware(spec, plan, files),
    ]


def processors(accelerator: Accelerator, count: int, architecture: Architecture = "x86_64") -> list[str]:
    """QEMU's arguments for them."""
    # A lab runs on x86-64: only such a machine can be under its KVM.
    if accelerator == "kvm" and architecture == "x86_64":
        return ["-accel", "kvm", "-cpu", "host", "-smp", str(count)]
    return ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", BOARDS[architecture].processor, "-smp", str(count)]


def efi_variables(spec: MachineSpec, plan: BootPlan, template: bytes) -> bytes:
    """The variable store with which a UEFI machine is powered on. `template` is the board's of the tools.

    It is written afresh at every power-on: boot options that an operating system left there are gone after a power cut.
    """
    if plan.source == "UefiHttp":
        return nvram.write_boot_order(
            template, [nvram.http_option(spec.mac, plan.http_boot_uri or "")] * spec.boot_attempts
        )
    if plan.source == "Pxe":
        return nvram.write_boot_order(template, [nvram.pxe_option(spec.mac)] * spec.boot_attempts)
    return template


def _firmware(spec: MachineSpec, plan: BootPlan, files: MachineFiles) -> list[str]:
    nic = ["virtio-net-pci", "netdev=net0", f"mac={spec.mac}", f"addr={nvram.NIC_PCI_SLOT}", "disable-legacy=on"]
    if spec.firmware == "BIOS":
        # graphics=off: SeaBIOS, and through it iPXE, speaks on the serial console. A ROM named explicitly does not
        # find a NIC with a legacy interface, hence disable-legacy=on. Without a ROM SeaBIOS cannot boot from the NIC.
        rom = "romfile=" if plan.source == "Hdd" else f"romfile={IPXE_ROM}"
        return ["-machine", "pc,graphics=off", "-device", ",".join([*nic, rom])]
    return [
        *("-machine", BOARDS[spec.architecture].machine),
        *("-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={BOARDS[spec.architecture].firmware}"),
        *("-drive", "if=pflash,unit=1,format=raw,file=" + _escape(str(files.variables))),
        # An empty ROM leaves the NIC to the firmware's own driver and its own PXE and HTTP boot.
        *("-device", ",".join([*nic, "romfile="])),
        # An attempt at PXE over IPv6 that nobody answers costs a minute.
        *("-fw_cfg", "name=opt/org.tianocore/IPv6PXESupport,string=n"),
        *("-fw_cfg", "name=opt/org.tianocore/IPv6Support,string=n"),
        *(_no_network_boot() if plan.source == "Hdd" else ()),
    ]


def _host_port(mac: MacAddress, tap: str) -> list[str]:
    # Without ctrl_rx it takes frames to every hardware address, as a representor does.
    nic = ["virtio-net-pci", "netdev=net1", f"mac={mac}", f"addr={nvram.HOST_PORT_PCI_SLOT}", "disable-legacy=on"]
    nic += ["romfile=", "ctrl_rx=off"]
    return ["-netdev", _options("tap,id=net1", ifname=tap, script="no", downscript="no"), "-device", ",".join(nic)]


def _tpm(spec: MachineSpec, files: MachineFiles) -> list[str]:
    return [
        *("-chardev", _options("socket,id=tpm", path=str(files.tpm_socket))),
        *("-tpmdev", "emulator,id=tpm0,chardev=tpm"),
        *("-device", f"{BOARDS[spec.architecture].tpm},tpmdev=tpm0"),
    ]


def _no_network_boot() -> list[str]:
    return [
        "-fw_cfg",
        "name=opt/org.tianocore/IPv4PXESupport,string=n",
        "-fw_cfg",
        "name=opt/org.tianocore/IPv4Support,string=n",
    ]


def _options(first: str, **named: str) -> str:
    return ",".join([first, *(f"{key}={_escape(value)}" for key, value in named.items())])


def _escape(value: str) -> str:
    # A comma inside a value of QEMU's is written twice.
    return value.replace(",", ",,")
