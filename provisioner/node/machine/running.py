"""How the running system is: clock, space, kubelet and runtime, and whether it could start another kernel."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from provisioner.node.machine.sysfs.files import read_text

KEXEC_PROGRAM = "/usr/sbin/kexec"
_TIME_ERROR = 5


def running_facts(root: str) -> dict[str, Any]:
    """Facts that change while the system runs. `root` is "" on a real machine."""
    reason = why_no_kexec(root)
    kubelet, runtime = active_units(["kubelet.service", "containerd.service"])
    return {
        "clockSynchronized": is_clock_synchronized(root),
        "rootFreeBytes": shutil.disk_usage(root or "/").free,
        "kubeletActive": kubelet,
        "runtimeActive": runtime,
        "kexecSupported": reason is None,
        "kexecReason": reason,
        "numaAlignment": read_text(f"{root}/run/provisioner/kubelet/numa-alignment")[:512] or None,
    }


def is_clock_synchronized(root: str) -> bool:
    """What timesyncd says, and where another program keeps the clock, what the kernel was told of it."""
    return Path(f"{root}/run/systemd/timesync/synchronized").exists() or (not root and _kernel_clock_is_synchronized())


def _kernel_clock_is_synchronized() -> bool:
    # struct timex has 208 bytes; modes = 0 asks only. Source: adjtimex(2).
    try:
        return ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(512)) not in (-1, _TIME_ERROR)
    except (OSError, AttributeError):
        return False


def active_units(units: list[str]) -> list[bool | None]:
    """Whether each unit is active; None where systemd cannot be asked."""
    try:
        done = subprocess.run(
            ["systemctl", "is-active", *units], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return [None] * len(units)
    said = done.stdout.split()
    return [word == "active" for word in said] if len(said) == len(units) else [None] * len(units)


def lockdown(root: str) -> str:
    """The kernel's lockdown mode: none, integrity or confidentiality."""
    _, found, rest = read_text(f"{root}/sys/kernel/security/lockdown").partition("[")
    return rest.partition("]")[0] if found else "none"


def why_no_kexec(root: str) -> str | None:
    """Why another kernel cannot be started from this one, or None if it can."""
    if not Path(f"{root}/sys/kernel/kexec_loaded").exists():
        return "the kernel has no kexec (CONFIG_KEXEC)"
    if read_text(f"{root}/proc/sys/kernel/kexec_load_disabled") == "1":
        return "kexec is switched off until the next boot (sysctl kernel.kexec_load_disabled)"
    if not os.access(f"{root}{KEXEC_PROGRAM}", os.X_OK):
        return f"the image has no {KEXEC_PROGRAM}"
    if lockdown(root) == "confidentiality":
        return "the kernel is locked down for confidentiality"
    return None
