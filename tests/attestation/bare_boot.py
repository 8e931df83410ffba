"""A virtual server's boot without a control plane: firmware, iPXE, kernel, and an init that tells what its TPM says.

The scripts are of the same commands as ipxe/boot.ipxe.j2, so that firmware and kernel measure what they do of a
server's boot. dnsmasq and a web server run in a network namespace of their own.
"""

from __future__ import annotations

import base64
import gzip
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.demo.leftovers import clean_lab
from lab.machine.machine import NETWORK_BOOT, BootPlan, Firmware, MachineFiles, MachineSpec
from lab.machine.qemu import QemuMachine
from lab.machine.tpm_manufacture import manufacture_tpm
from lab.network import LabNetwork, tap_name
from lab.tools import Tools
from provisioner.api.machinery.values import parse_mac
from provisioner.image.tools import cpio

SERVER: Final = "r01-u01"
LONGEST_BOOT_SECONDS: Final = 400.0
WEB: Final = "http://10.80.0.1:8000"
ARGUMENTS: Final = (
    "initrd=stage1.img provisioner.server=r01-u01 provisioner.mac=52:54:00:00:00:01 provisioner.url=http://10.80.0.1 "
    "console=ttyS0,115200"
)
_MARKS: Final = ("TPM-SAYS-PCRS", "TPM-SAYS-LOG", "TPM-SAID-ALL")
_INIT: Final = f"""#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t securityfs securityfs /sys/kernel/security
echo {_MARKS[0]}
for pcr in $($b seq 0 23); do echo "$pcr $($b cat /sys/class/tpm/tpm0/pcr-sha256/$pcr)"; done
echo {_MARKS[1]}
$b base64 /sys/kernel/security/tpm0/binary_bios_measurements
echo {_MARKS[2]}
$b poweroff -f
"""
_FIRST_SCRIPT: Final = f"""#!ipxe
:again
ifopen net0
isset ${{net0/ip}} || dhcp net0
chain --autofree {WEB}/boot.ipxe || goto again
"""
_BOOT_SCRIPT: Final = f"""#!ipxe
imgfree
kernel --name vmlinuz --timeout 60000 {WEB}/vmlinuz {ARGUMENTS}
initrd --name stage1.img --timeout 60000 {WEB}/stage1.img
boot
"""


class InNamespace(Tools):
    """The tools, in a lab's network."""

    network: LabNetwork

    def command(self, argv: Sequence[str | Path], binds: Sequence[Path] = ()) -> list[str]:
        return self.network.command(super().command(argv, binds))


@dataclass(frozen=True)
class Told:
    """What the TPM says after a boot, by number and in the firmware's own format."""

    pcrs: dict[int, str]
    event_log: bytes


@dataclass(frozen=True)
class BareBoot:
    """One server, whose files are below `folder`, a short path. Needs root."""

    tools: Tools
    kernel: Path
    folder: Path
    firmware: Firmware = "UEFI"

    @contextmanager
    def site(self) -> Iterator[LabNetwork]:
        """The network, with DHCP, TFTP and HTTP in it, while the block lasts."""
        network = LabNetwork("bareboot")
        clean_lab(network)
        network.create(taps=[tap_name(SERVER)])
        self._write_files()
        running: list[subprocess.Popen[bytes]] = []
        try:
            for command in (self._dnsmasq(), self._web()):
                quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
                running.append(subprocess.Popen(network.command(command), **quiet))  # type: ignore[call-overload]
            yield network
        finally:
            for process in running:
                process.kill()
                process.wait()
            clean_lab(network)

    def boot(self, network: LabNetwork, *, by_http: bool = False) -> Told:
        """From power-on until the init powers off. Exits with the console's end if that takes too long."""
        files = MachineFiles(directory=self.folder / SERVER)
        shutil.rmtree(files.directory, ignore_errors=True)
        files.directory.mkdir(parents=True)
        manufacture_tpm(SERVER, files, self.folder / "tpm-authority", self.tools)
        spec = MachineSpec(
            name=SERVER,
            firmware=self.firmware,
            mac=parse_mac("52:54:00:00:00:01"),
            uuid="3b5d4f1e-0a5e-4a59-8a0e-000000000001",
            serial="LAB1",
            has_tpm=True,
        )
        plan = BootPlan(source="UefiHttp", http_boot_uri=f"{WEB}/snponly.efi") if by_http else NETWORK_BOOT
        inside = InNamespace(self.tools.root)
        object.__setattr__(inside, "network", network)
        with ThreadPoolExecutor(max_workers=1) as launcher:
            machine = QemuMachine(spec, files, tools=inside, tap=tap_name(SERVER), accelerator="tcg", launcher=launcher)
            machine.power_on(plan)
            try:
                self._wait(machine, files, time.monotonic() + LONGEST_BOOT_SECONDS)
            finally:
                machine.power_off()
        return _told(files.console_log.read_text(errors="replace"))

    def _wait(self, machine: QemuMachine, files: MachineFiles, deadline: float) -> None:
        """Until init has said all."""
        while machine.running:
            said = files.console_log.read_text(errors="replace") if files.console_log.exists() else ""
            if _MARKS[2] in said:
                return
            if time.monotonic() > deadline:
                sys.exit(f"bare boot: no end after {LONGEST_BOOT_SECONDS:.0f} s; the console ends with {said[-500:]}")
            time.sleep(0.05)

    def _write_files(self) -> None:
        for folder in (self.folder / "tftp", self.folder / "web"):
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("snponly.efi", "undionly.kpxe"):
                shutil.copy(self.tools.path(f"/usr/lib/ipxe/{name}"), folder / name)
            (folder / "autoexec.ipxe").write_text(_FIRST_SCRIPT)
        (self.folder / "web" / "boot.ipxe").write_text(_BOOT_SCRIPT)
        (self.folder / "web" / "stage1.img").write_bytes(self.initramfs())
        shutil.copy(self.kernel, self.folder / "web" / "vmlinuz")

    def initramfs(self) -> bytes:
        """An init that says what the TPM holds, and powers off."""
        entries = [
            cpio.file("bin/busybox", self.tools.path("/usr/bin/busybox").read_bytes(), 0o755),
            cpio.file("init", _INIT.encode(), 0o755),
            cpio.character_device("dev/console", 5, 1),
        ]
        return gzip.compress(cpio.archive(entries), compresslevel=1, mtime=0)

    def _dnsmasq(self) -> list[str]:
        by_network = "snponly.efi" if self.firmware == "UEFI" else f"{WEB}/boot.ipxe"
        arguments = [
            *("dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root"),
            *("--interface=boot0", "--bind-interfaces", "--dhcp-authoritative"),
            *("--dhcp-range=10.80.0.20,10.80.0.60", f"--dhcp-leasefile={self.folder / 'leases'}"),
            *("--enable-tftp", f"--tftp-root={self.folder / 'tftp'}", f"--dhcp-boot={by_network}"),
        ]
        return self.tools.command(arguments, [self.folder])

    def _web(self) -> list[str]:
        # Not pytest-httpserver: files from a folder, in a network namespace; record_boots.py runs it without pytest.
        return [sys.executable, "-m", "http.server", "8000", "--directory", str(self.folder / "web")]


def _told(console: str) -> Told:
    if _MARKS[2] not in console:
        sys.exit(f"bare boot: the machine went off before its init had spoken; the console ends with {console[-500:]}")
    registers = console.split(_MARKS[0], 1)[1].split(_MARKS[1], 1)[0].split()
    log = console.split(_MARKS[1], 1)[1].split(_MARKS[2], 1)[0]
    lines = [line for line in log.split() if "/" not in line or not line.startswith(("base64:", "/sys"))]
    is_known = len(registers) == 48
    return Told(
        pcrs={int(registers[at]): registers[at + 1].lower() for at in range(0, 48, 2)} if is_known else {},
        event_log=base64.b64decode("".join(lines)) if is_known else b"",
    )
