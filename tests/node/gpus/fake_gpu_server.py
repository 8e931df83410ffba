"""A server with 8 H100 as its kernel and NVML show it: made-up sysfs, and a fake NVML compiled here.

The values have the shape of such a server's (HGX H100, driver 550); they were not read from one.
"""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from tests.node.made_machine import add_pci, make_machine, write
from tests.tools import installed

DRIVER = "550.163.01"
KERNEL = "6.12.107+deb13-amd64"
ADDRESSES = tuple(f"0000:{bus}:00.0" for bus in ("1b", "43", "52", "61", "9d", "c3", "d1", "df"))
H100 = {
    "name": "NVIDIA H100 80GB HBM3",
    "memory": f"{81559 << 20} {615 << 20} {512 << 20}",
    "ecc-mode": "1 1",
    "ecc-corrected": "0",
    "ecc-uncorrected": "0",
    "ecc-uncorrected-aggregate": "0",
    "rows": "0 0 0 0",
    "nvlinks": "1" * 18,
    **{f"nvlink-errors.{counter}": "0" for counter in range(4)},
    "fabric": "3 0 0 0x2a abcdefghijklmnop",
    "pcie-generation": "5",
    "pcie-width": "16",
    "pcie-max-generation": "5",
    "pcie-max-width": "16",
    "pcie-replays": "0",
    "throttle": "0x1",
    "clock-sm": "345",
    "clock-sm-max": "1980",
    "clock-memory": "2619",
    "temperature": "31",
    "power": "70412",
    "power-limit": "700000",
    "power-limit-default": "700000",
    "energy": "123456789",
    "utilization": "0 0",
    "mig-mode": "0 0",
}


@cache
def fake_nvml() -> Path:
    """The library, compiled once a test run."""
    library = Path(mkdtemp(prefix="fake-nvml-")) / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("fake_nvml.c")
    command = [
        installed("cc"),
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
        "-o",
        str(library),
        str(source),
        "-ldl",
    ]
    subprocess.run(command, check=True, timeout=120)
    return library


class FakeGpuServer:
    """Its tree, below `root`. `nvml`: what the fake library answers, to be changed and written."""

    def __init__(self, root: Path) -> None:
        self.root = make_machine(root)
        self.nvml = {"driver": DRIVER, "library": f"12.{DRIVER}", "count": str(len(ADDRESSES))}
        self.nvml |= {f"gpu.*.{key}": value for key, value in H100.items()}
        for index, address in enumerate(ADDRESSES):
            self.nvml |= {
                f"gpu.{index}.pci": address,
                f"gpu.{index}.uuid": f"GPU-{index:08x}-aaaa-bbbb-cccc-0123456789ab",
            }
            add_pci(root, address, "0x030200", ("0x10de", "0x2330"), "nvidia")
        for number in range(4):
            add_pci(root, f"0000:{number + 5:02x}:00.0", "0x068000", ("0x10de", "0x22a3"), "nvidia-nvswitch")
        write(root, "proc/sys/kernel/osrelease", KERNEL + "\n")
        write(root, "proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX Open Kernel Module  {DRIVER}  Release\n")
        write(root, "sys/module/nvidia/version", DRIVER + "\n")
        write(root, f"lib/modules/{KERNEL}/modules.dep", "updates/dkms/nvidia.ko.xz:\n")
        self.say("Linux version 6.12")
        self.install_fabric_manager(DRIVER)
        (root / "usr/lib").mkdir(parents=True, exist_ok=True)
        shutil.copy(fake_nvml(), root / "usr/lib/libnvidia-ml.so.1")
        self.write()

    def write(self, **changes: str) -> None:
        """Answer so from now on."""
        self.nvml |= changes
        text = "".join(f"{key} {value}\n" for key, value in self.nvml.items())
        write(self.root, "usr/lib/fake_nvml.txt", text)

    def say(self, message: str, *, at_seconds: float = 5.0) -> None:
        """One more record of the kernel log."""
        log = self.root / "dev/kmsg"
        log.parent.mkdir(exist_ok=True)
        with log.open("a") as file:
            file.write(f"4,100,{int(at_seconds * 1e6)},-;{message}\n SUBSYSTEM=pci\n")

    def install_fabric_manager(self, version: str) -> None:
        self._program("nv-fabricmanager", f"echo 'Fabric Manager version is : {version}'")
        self.fabric_manager_is("active")

    def fabric_manager_is(self, state: str) -> None:
        self._program("systemctl", f'[ "$*" = "is-active nvidia-fabricmanager.service" ] && echo {state}')

    def _program(self, name: str, line: str) -> None:
        write(self.root, f"usr/bin/{name}", f"#!/bin/sh\n{line}\n")
        (self.root / "usr/bin" / name).chmod(0o755)

    def unload_driver(self) -> None:
        for path in ("proc/driver/nvidia/version", "sys/module/nvidia/version"):
            (self.root / path).unlink()
        (self.root / "sys/module/nvidia").rmdir()
        for address in ADDRESSES:
            (self.root / "sys/devices/pci0000:00" / address / "driver").unlink()
