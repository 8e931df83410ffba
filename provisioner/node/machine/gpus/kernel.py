"""What the kernel and the image say of the GPUs' driver, whether or not NVML answers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

from provisioner.node.machine.sysfs.files import names_in, read_text

NVIDIA = "0x10de"
FABRIC_MANAGER = "/usr/bin/nv-fabricmanager"
FABRIC_MANAGER_UNIT = "nvidia-fabricmanager.service"
SYSTEMCTL = "/usr/bin/systemctl"
PROGRAM_SECONDS = 10.0

_VERSION = re.compile(r"\b([0-9]{3,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?)\b")


def has_gpus(root: str) -> bool:
    """Whether there is a GPU of NVIDIA's on PCI, or was when its driver loaded."""
    return Path(f"{root}/proc/driver/nvidia/version").exists() or _count_functions(root, "0x03") > 0


def driver_facts(root: str) -> dict[str, Any]:
    """The kernel's module, the switches, and the fabricmanager where the image has one."""
    loaded = (Path(root + "/sys/module/nvidia")).exists()
    said = read_text(f"{root}/proc/driver/nvidia/version")
    version = read_text(f"{root}/sys/module/nvidia/version") or _version(said)
    facts: dict[str, Any] = {
        "moduleLoaded": loaded,
        "moduleInstalled": loaded or module_is_installed(root),
        "moduleVersion": version or None,
        "switches": _count_functions(root, "0x0680") or None,
    }
    if os.access(root + FABRIC_MANAGER, os.X_OK):
        facts["fabricManagerVersion"] = _version(_run([root + FABRIC_MANAGER, "--version"])) or "unknown"
        facts["fabricManagerState"] = _run([root + SYSTEMCTL, "is-active", FABRIC_MANAGER_UNIT]) or None
    return {key: value for key, value in facts.items() if value is not None}


def module_is_installed(root: str) -> bool:
    """Whether depmod found a module `nvidia` for the kernel that runs."""
    kernel = read_text(f"{root}/proc/sys/kernel/osrelease")
    try:
        with open(f"{root}/lib/modules/{kernel}/modules.dep", encoding="utf-8") as lines:  # noqa: PTH123
            return any(re.match(r"\S*/nvidia\.ko[.a-z0-9]*:", line) for line in lines)
    except OSError:
        return False


def _count_functions(root: str, class_prefix: str) -> int:
    """How many PCI functions of NVIDIA's there are of a class."""
    folders = [f"{root}/sys/bus/pci/devices/{name}" for name in names_in(f"{root}/sys/bus/pci/devices")]
    return sum(
        read_text(f"{folder}/vendor").lower() == NVIDIA and read_text(f"{folder}/class").startswith(class_prefix)
        for folder in folders
    )


def _version(text: str) -> str:
    found = _VERSION.search(text)
    return found[1] if found else ""


def _run(command: list[str]) -> str:
    """The first line of what it prints; "" if it cannot be run. A status other than 0 may come with words, too."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().partition("\n")[0][:200]
