"""A fake driver: packages with the names and paths of real ones and a few bytes in each file; and modules that say what
real ones say of themselves, and do nothing."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

from provisioner.image.base import Base
from provisioner.image.driver.obtain import Obtained
from provisioner.image.plan import DEBS

RELEASE = "6.8.0-90-generic"
VERSION = "580.105.08"


def fake_module(name: str, *, version: str = VERSION, release: str = RELEASE, depends: str = "") -> bytes:
    """An ELF file with nothing but a section .modinfo."""
    said = [f"version={version}", f"name={name}", f"depends={depends}", f"vermagic={release} SMP preempt mod_unload "]
    info = b"\0" + b"".join(entry.encode() + b"\0" for entry in said)
    names = b"\0.modinfo\0.shstrtab\0"
    headers_at = 64 + len(info) + len(names)
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, headers_at, 0, 64, 0, 0, 64, 3, 2
    )
    sections = [
        bytes(64),
        struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, 64, len(info), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", 10, 3, 0, 0, 64 + len(info), len(names), 0, 0, 1, 0),
    ]
    return head + info + names + b"".join(sections)


def fake_package(folder: Path, name: str, version: str, files: Mapping[str, bytes | str]) -> None:
    """A .deb in `folder`. A value that is text makes a link; `copyright` is there without being asked for."""
    tree = folder / f"{name}.tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\n"
        "Description: fake\n"
    )
    for path, content in {f"usr/share/doc/{name}/copyright": b"a licence\n", **files}.items():
        file = tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            file.symlink_to(content)
        else:
            file.write_bytes(content)
            file.chmod(0o4755 if path == "usr/bin/nvidia-modprobe" else 0o644)
    target = folder / f"{name}_{version}_amd64.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", str(tree), str(target)], check=True, stdout=-3)
    subprocess.run(["rm", "-r", str(tree)], check=True)


def fake_obtained(folder: Path, *, modules: Mapping[str, bytes] | None = None, firmware: str = VERSION) -> Obtained:
    """What Ubuntu would give for images/gpu-node, as far as rules look at it."""
    debs = folder / DEBS
    debs.mkdir(parents=True)
    libraries = "usr/lib/x86_64-linux-gnu"
    given = {"nvidia": fake_module("nvidia", depends="drm"), "nvidia-uvm": fake_module("nvidia_uvm", depends="nvidia")}
    kernel = f"lib/modules/{RELEASE}/kernel/nvidia-580-server-open"
    compute = {
        f"{libraries}/{name}.so.{VERSION}": f"{name} {VERSION}".encode()
        for name in ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-opencl")
    }
    links = {f"{libraries}/{name}.so.1": f"{name}.so.{VERSION}" for name in ("libcuda", "libnvidia-ml")}
    ubuntu = f"{VERSION}-0ubuntu0.24.04.1"
    fake_package(
        debs,
        f"linux-modules-nvidia-580-server-open-{RELEASE}",
        "6.8.0-90.91",
        {f"{kernel}/{name}.ko": content for name, content in (given if modules is None else modules).items()},
    )
    fake_package(debs, "libnvidia-compute-580-server", ubuntu, {**compute, **links})
    fake_package(debs, "libnvidia-cfg1-580-server", ubuntu, {f"{libraries}/libnvidia-cfg.so.{VERSION}": b"cfg"})
    fake_package(
        debs, "nvidia-utils-580-server", ubuntu, {"usr/bin/nvidia-smi": b"smi", "usr/bin/nvidia-debugdump": b"x"}
    )
    fake_package(debs, "nvidia-compute-utils-580-server", ubuntu, {"usr/bin/nvidia-persistenced": b"persistenced"})
    fake_package(debs, "nvidia-modprobe", "580.95.05-1", {"usr/bin/nvidia-modprobe": b"modprobe"})
    fake_package(
        debs,
        f"nvidia-firmware-580-server-{VERSION}",
        ubuntu,
        {f"lib/firmware/nvidia/{firmware}/{name}.bin": name.encode() for name in ("gsp_ga10x", "gsp_tu10x", "gsp_new")},
    )
    return Obtained(folder)


def fake_base(folder: Path) -> Base:
    """A base of which the driver needs the kernel's release alone."""
    (folder / "root/usr/lib/systemd/system").mkdir(parents=True)
    (folder / "versions.json").write_text(f'{{"kernel": "{RELEASE}"}}')
    return Base(folder)


def listing(root: Path) -> str:
    """Every file and link below `root`, a line each."""
    lines = []
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root)
        if path.is_symlink():
            lines.append(f"{name} -> {path.readlink()}")
        elif path.is_file():
            lines.append(f"{path.stat().st_mode & 0o7777:04o} {name}")
    return "\n".join(lines) + "\n"
