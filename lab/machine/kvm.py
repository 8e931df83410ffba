"""Whether KVM on this machine really boots Linux. /dev/kvm alone says little: nested KVM may start a guest and hang.

The probe boots a real kernel whose init says one line and powers off; only that line counts. The answer is kept under
what it depends on: the kernel, the processor, this machine's own kernel and the tools.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import structlog

from lab.machine.machine import EMULATED_KERNEL_ARGUMENTS, Accelerator, processors
from lab.tools import Tools
from provisioner.image.tools import cpio

log = structlog.get_logger()

PROBE_SECONDS: Final = 20.0
_MARK: Final = "provisioner-guest-speaks"
_INIT: Final = f"#!/bin/busybox sh\n/bin/busybox echo {_MARK}\n/bin/busybox poweroff -f\n"


def choose_accelerator(
    kernel: Path, tools: Tools, cache: Path, *, device: Path = Path("/dev/kvm"), timeout_seconds: float = PROBE_SECONDS
) -> Accelerator:
    """`kvm` if this kernel boots under KVM here, else `tcg`. The first answer takes a second, or `timeout_seconds`.

    Raises: OSError if the kernel cannot be read.
    """
    if not os.access(device, os.R_OK | os.W_OK):
        log.info("machines are emulated", reason=f"{device} is absent or not accessible")
        return "tcg"
    answers = cache / "kvm-probe.json"
    key = _content_key(kernel, tools)
    known: dict[str, bool] = json.loads(answers.read_text()) if answers.exists() else {}
    if key not in known:
        known[key] = boots(kernel, tools, "kvm", timeout_seconds=timeout_seconds)
        temporary = answers.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(known))
        temporary.rename(answers)
        log.info("KVM was probed", boots_linux=known[key])
    return "kvm" if known[key] else "tcg"


def boots(kernel: Path, tools: Tools, accelerator: Accelerator, *, timeout_seconds: float) -> bool:
    """Whether a guest with this kernel reaches its init, and says so, in time."""
    with tempfile.TemporaryDirectory(prefix="provisioner-probe-") as name:
        directory = Path(name)
        console, initramfs = directory / "console.log", directory / "initramfs"
        initramfs.write_bytes(probe_initramfs(tools))
        (directory / "kernel").write_bytes(kernel.read_bytes())
        argv = tools.command(probe_command(directory, accelerator), [directory])
        try:
            said = subprocess.run(argv, timeout=timeout_seconds, capture_output=True, text=True, check=False).stderr
        except subprocess.TimeoutExpired:
            # run() has killed it; its console may still have said enough.
            said = f"it was still running after {timeout_seconds} s"
        log.info("probe guest ended", accelerator=accelerator, qemu=said.strip())
        return console.exists() and _MARK in console.read_text(errors="replace")


def probe_command(directory: Path, accelerator: Accelerator) -> list[str]:
    """QEMU's arguments for the probe; two processors, because bringing up the second is where nested KVM hangs too."""
    return [
        "qemu-system-x86_64",
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-machine", "q35", *processors(accelerator, 2), "-m", "256M"),
        *("-serial", f"file:{directory / 'console.log'}"),
        *("-kernel", str(directory / "kernel"), "-initrd", str(directory / "initramfs")),
        *("-append", " ".join(["console=ttyS0 panic=-1 quiet", *EMULATED_KERNEL_ARGUMENTS])),
    ]


def probe_initramfs(tools: Tools) -> bytes:
    """An init that says one line and powers off."""
    busybox = tools.path("/usr/bin/busybox").read_bytes()
    entries = [
        cpio.file("bin/busybox", busybox, 0o755),
        cpio.file("init", _INIT.encode(), 0o755),
        cpio.character_device("dev/console", 5, 1),
    ]
    return gzip.compress(cpio.archive(entries), compresslevel=1, mtime=0)


def _content_key(kernel: Path, tools: Tools) -> str:
    processor = sorted(
        {line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")}
    )
    digest = hashlib.sha256(kernel.read_bytes()).hexdigest()
    return hashlib.sha256("\n".join([digest, *processor, platform.release(), tools.root.name]).encode()).hexdigest()
