"""Load another kernel, and start it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from provisioner.node.image.manifest import ImageError
from provisioner.node.machine.running import KEXEC_PROGRAM

_LOAD_SECONDS = 300
_START_SECONDS = 30


def load_commands(kernel: str, initrd: str, command_line: str, lockdown: str) -> list[list[str]]:
    """kexec's arguments, the better way first. Pure.

    A locked down kernel takes signed kernels through kexec_file_load only (-s). Otherwise kexec_load (-c) without the
    checksum over kernel and initramfs that the old way computes twice, while loading and again before the new kernel
    starts: what is loaded was verified just before, and nothing but the kernel can write to it.
    """
    ways = [["-s"]] if lockdown != "none" else [["-c", "--no-checks"], ["-s"]]
    what = ["-l", kernel, f"--initrd={initrd}", f"--command-line={command_line}"]
    return [[KEXEC_PROGRAM, *way, *what] for way in ways]


def load(kernel: str, initrd: str, command_line: str, lockdown: str) -> None:
    """Raises: ImageError with the program's own words."""
    *first, last = load_commands(kernel, initrd, command_line, lockdown)
    for command in first:
        try:
            return _run(command, "the next kernel was not loaded")
        except ImageError:
            continue
    return _run(last, "the next kernel was not loaded")


def unload() -> None:
    """Forget a loaded kernel; without one nothing happens. Raises: ImageError."""
    if is_loaded():
        _run([KEXEC_PROGRAM, "-u"], "the loaded kernel was not forgotten")


def is_loaded() -> bool:
    try:
        return Path("/sys/kernel/kexec_loaded").read_text().strip() == "1"
    except OSError:
        return False


def start_loaded() -> None:
    """End this system and start the loaded kernel; returns at once. Raises: ImageError.

    --force: the node was drained before; every process still gets SIGTERM and DefaultTimeoutStopSec to end, and file
    systems are unmounted, but units are not stopped in their order: nothing that this system holds outlives it.
    """
    _run(["systemctl", "--force", "kexec"], "the loaded kernel was not started", _START_SECONDS)


def reboot() -> None:
    """Reboot through the firmware; returns at once. Raises: ImageError."""
    _run(["systemctl", "reboot"], "the system would not reboot", _START_SECONDS)


def _run(command: list[str], what: str, seconds: float = _LOAD_SECONDS) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ImageError(f"{what}: {error}") from error
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())[-300:] or f"status {done.returncode}"
        raise ImageError(f"{what}: {said}")
