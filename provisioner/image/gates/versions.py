"""Versions agree: kernel and modules; NVIDIA's kernel modules, user space, GSP firmware and fabric manager.

NVIDIA's parts talk to one another in a protocol that has no version of its own: another patch level is refused when the
first program opens a GPU, on the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from provisioner.image.gates.failure import GateFailure
from provisioner.image.gates.modules import FOLDER
from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.read.kernel_module import KernelModule
from provisioner.image.gates.read.tree import Tree
from provisioner.image.tools.tables import RecipeGroup

GATE: Final = "versions"
_DRIVER: Final = r"\d{3}\.\d{1,3}(?:\.\d{1,3})?"
_LIBRARY: Final = re.compile(rf"(lib(?:cuda|nvidia-[a-z0-9-]+|nvcuvid|nvoptix))\.so\.({_DRIVER})")
_FIRMWARE: Final = re.compile(rf"usr/lib/firmware/nvidia/({_DRIVER})/(gsp_[a-z0-9]+\.bin)(?:\.zst|\.xz)?")
_UPSTREAM: Final = re.compile(rf"(?:\d+:)?({_DRIVER})(?:[^0-9.].*)?")
_PROGRAMS: Final = ("nvidia-smi", "nvidia-persistenced", "nv-fabricmanager", "nvidia-imex")
"""nvidia-modprobe is not among them: it makes device files, and goes with every driver."""
_WITH_OWN_VERSION: Final = (
    "libnvidia-container",
    "libnvidia-container-go",
    "libnvidia-egl-gbm",
    "libnvidia-egl-wayland",
)
_FIRST: Final = "kernel module nvidia"
"""The one that the others of the driver depend on."""


@dataclass(frozen=True)
class PartVersion:
    """One part of the driver and the version that it has; `version` empty if it cannot be told."""

    part: str
    path: str
    version: str


def check_kernel(
    tree: Tree, modules: Mapping[str, KernelModule], release: str, kernel_release: str | None
) -> Iterator[GateFailure]:
    """`release`: what the manifest says. `kernel_release`: what the kernel's file says of itself, if it does."""
    if kernel_release is not None and kernel_release != release:
        yield GateFailure(
            GATE,
            "kernel",
            f"its file is of release {kernel_release}",
            f"{release}, as in the manifest",
            "build the base again with --force",
        )
    folders = {path.removeprefix(FOLDER).split("/")[0] for path in tree.entries if path.startswith(FOLDER)}
    for folder in sorted(folders - {release}):
        yield GateFailure(
            GATE,
            f"/{FOLDER}{folder}",
            "modules of another kernel",
            f"those of {release}, which boots",
            "take kernel and modules of one package, and build the driver against it",
        )
    if release not in folders:
        yield GateFailure(
            GATE, f"/{FOLDER}{release}", "is not there", "modules of the kernel", "add the kernel's modules"
        )
    for path, module in modules.items():
        if module.release != release:
            yield GateFailure(
                GATE,
                f"/{path}",
                f"vermagic of {module.release or 'no kernel'}",
                f"vermagic of {release}",
                "build the module against the headers of this very kernel",
            )


def driver_versions(
    tree: Tree, modules: Mapping[str, KernelModule], packages: Iterable[InstalledPackage]
) -> tuple[PartVersion, ...]:
    """What each part of NVIDIA's driver in the root says; nothing in an image without one."""
    told = [
        PartVersion(f"kernel module {PurePosixPath(path).stem}", path, module.version)
        for path, module in modules.items()
        if PurePosixPath(path).stem.replace("-", "_").startswith("nvidia")
        and "drivers/i2c" not in path
        and "drivers/net" not in path
        and "drivers/usb" not in path
    ]
    owner = {file: package for package in packages for file in package.files}
    for entry in tree.files():
        name = PurePosixPath(entry.path).name
        if (match := _LIBRARY.fullmatch(name)) and match[1] not in _WITH_OWN_VERSION:
            told.append(PartVersion(match[1], entry.path, match[2]))
        elif match := _FIRMWARE.fullmatch(entry.path):
            told.append(PartVersion(f"GSP firmware {match[2]}", entry.path, match[1]))
        elif name in _PROGRAMS and entry.linkage is not None:
            package = owner.get(entry.path)
            upstream = _UPSTREAM.fullmatch(package.version) if package else None
            told.append(PartVersion(name, entry.path, upstream[1] if upstream else _in_content(tree, entry.path, told)))
    return tuple(told)


def check_driver(told: Iterable[PartVersion], manifest: Mapping[str, str]) -> Iterator[GateFailure]:
    """All have the version of the module `nvidia` (without it: that of most), and the manifest's `driver` is that."""
    parts = list(told)
    if not parts:
        return
    modules = {each.part: each.version for each in parts if each.part.startswith("kernel module")}
    versions = list(modules.values()) or [each.version for each in parts if each.version]
    expected = modules.get(_FIRST) or (max(sorted(set(versions)), key=versions.count) if versions else "")
    for each in parts:
        if each.version != expected or not each.version:
            yield GateFailure(
                GATE,
                f"/{each.path}",
                f"{each.part} is of version {each.version or 'unknown'}",
                f"{expected or 'a version'}, as {'the kernel module' if modules else 'most other parts'}",
                "take all parts of NVIDIA's driver in one version: packages of [driver] in the recipe",
            )
    for kind, needed in (
        ("kernel module", bool(modules)),
        ("libnvidia-ml", any(e.part == "libnvidia-ml" for e in parts)),
    ):
        if not needed:
            yield GateFailure(
                GATE,
                "NVIDIA's driver",
                f"parts of it are there ({parts[0].part}), its {kind} is not",
                "all of it, or none",
                "correct [driver] of the recipe",
            )
    if manifest.get("driver", expected) != expected:
        yield GateFailure(
            GATE,
            "manifest",
            f"version.driver is {manifest['driver']}",
            f"{expected}, as in the root",
            "build the driver's layer again with --force",
        )


def check_agreement(manifest: Mapping[str, str], groups: Iterable[RecipeGroup]) -> Iterator[GateFailure]:
    """Versions of the manifest that the recipe says must be equal, as far as the image has them."""
    for group in groups:
        told = {name: manifest[name] for name in group.names if name in manifest}
        if len(set(told.values())) > 1:
            observed = ", ".join(f"{name} {version}" for name, version in told.items())
            yield GateFailure(GATE, "manifest", observed, f"one version: {group.why}", "correct the recipe's packages")


def _in_content(tree: Tree, path: str, told: Iterable[PartVersion]) -> str:
    """The first version of another part that a program's file names."""
    content = tree.content(path)
    return next((each.version for each in told if each.version and each.version.encode() in content), "")
