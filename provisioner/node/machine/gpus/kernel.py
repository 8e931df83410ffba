"""What the kernel and the image say of the GPUs' driver, whether or not NVML answers."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

NVIDIA = "0x10de"
FABRIC_MANAGER = "/usr/bin/nv-fabricmanager"
FABRIC_MANAGER_UNIT = "nvidia-fabricmanager.service"
SYSTEMCTL = "/usr/bin/systemctl"
PROGRAM_SECONDS = 10.0

_VERSION = re.compile(r"\b([0-9]{3,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?)\b")


def has_gpus(root: str) -> bool:
    """Whether there is a GPU of NVIDIA's on PCI, or was when its driver loaded."""
    if Path(f"{root}/proc/driver/nvidia/version").exists():
        return True
    return any(_is(folder, "0x03") for folder in _functions(root))


def driver_facts(root: str) -> dict[str, Any]:
    """The kernel's module, the switches, and the fabricmanager where the image has one."""
    loaded = (Path(root + "/sys/module/nvidia")).exists()
    said = _text(f"{root}/proc/driver/nvidia/version")
    version = _text(f"{root}/sys/module/nvidia/version") or _version(said)
    facts: dict[str, Any] = {
        "moduleLoaded": loaded,
        "moduleInstalled": loaded or module_is_installed(root),
        "moduleVersion": version or None,
        "switches": sum(1 for folder in _functions(root) if _is(folder, "0x0680")) or None,
    }
    if os.access(root + FABRIC_MANAGER, os.X_OK):
        facts["fabricManagerVersion"] = _version(_run([root + FABRIC_MANAGER, "--version"])) or "unknown"
        facts["fabricManagerState"] = _run([root + SYSTEMCTL, "is-active", FABRIC_MANAGER_UNIT]) or None
    return {key: value for key, value in facts.items() if value is not None}


def module_is_installed(root: str) -> bool:
    """Whether depmod found a module `nvidia` for the kernel that runs."""
    kernel = _text(f"{root}/proc/sys/kernel/osrelease")
    try:
        with open(f"{root}/lib/modules/{kernel}/modules.dep", encoding="utf-8") as lines:  # noqa: PTH123
            return any(re.match(r"\S*/nvidia\.ko[.a-z0-9]*:", line) for line in lines)
    except OSError:
        return False


def _functions(root: str) -> list[Path]:
    try:
        return sorted(Path(f"{root}/sys/bus/pci/devices").iterdir())
    except OSError:
        return []


def _is(folder: Path, class_prefix: str) -> bool:
    return _text(f"{folder}/vendor").lower() == NVIDIA and _text(f"{folder}/class").startswith(class_prefix)


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


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read(4096).strip()
    except OSError:
        return ""
