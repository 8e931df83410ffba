"""stage-1: busybox, signify, drivers and the recipe's scripts in one small initramfs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.base import Base
from provisioner.image.finished.sign import PublicKey
from provisioner.image.recipe import Recipe
from provisioner.image.tools import cpio
from provisioner.image.tools.command import run
from provisioner.image.tools.elf import read_linkage
from provisioner.image.tools.foreign import ForeignPrograms

_LEVEL = "-12"  # 19 takes four times as long for 10 %


def pack_stage1(recipe: Recipe, base: Base, key: PublicKey, foreign: ForeignPrograms) -> bytes:
    """The initramfs, compressed with zstd."""
    entries = [
        *(cpio.folder(name) for name in ("dev", "proc", "sys", "run", "ram", "sysroot", "tmp")),
        # The kernel opens it before anything could make it.
        cpio.character_device("dev/console", 5, 1),
        *_programs(base, foreign),
        *_modules(base),
        *scripts(recipe.trees("stage1")),
        cpio.file("etc/provisioner/image.pub", key.encode().encode()),
    ]
    done = subprocess.run(["zstd", _LEVEL, "-q", "-c"], input=cpio.archive(entries), stdout=subprocess.PIPE, check=True)
    return done.stdout


def _programs(base: Base, foreign: ForeignPrograms) -> list[cpio.CpioEntry]:
    packages, root = base.stage1_packages, base.root
    busybox = packages / "usr/bin/busybox"
    listed = run(foreign.command([str(busybox), "--list"]), hint="build on a machine of the image's architecture")
    applets = listed.decode().split()
    entries = [cpio.file("bin/busybox", busybox.read_bytes(), 0o755)]
    entries += [cpio.link(f"bin/{applet}", "busybox") for applet in applets if applet != "busybox"]
    signify = packages / "usr/bin/signify-openbsd"
    entries.append(cpio.file("bin/signify-openbsd", signify.read_bytes(), 0o755))
    libraries = _libraries(signify, [packages, root])
    entries += [cpio.file(f"lib/{name}", file.read_bytes(), 0o755) for name, file in libraries.items()]
    loader = read_linkage(signify.read_bytes()).interpreter
    if loader is not None:
        # /lib64/ld-linux-x86-64.so.2: the package has it below /usr, where /lib64 points.
        content = next(root.glob(f"usr/lib*/**/{Path(loader).name}")).read_bytes()
        entries.append(cpio.file(loader.lstrip("/"), content, 0o755))
    return entries


def _libraries(program: Path, trees: list[Path]) -> dict[str, Path]:
    """What the program is linked with, by soname, out of the trees: the closure that ldd would show."""
    found: dict[str, Path] = {}
    queue = [program]
    while queue:
        for name in read_linkage(queue.pop().read_bytes()).needed:
            if name in found:
                continue
            candidates = [file for tree in trees for file in tree.glob(f"usr/lib/*-linux-gnu*/{name}")]
            candidates += [file for tree in trees for file in tree.glob(f"lib/*-linux-gnu*/{name}")]
            if not candidates:
                raise NeedsHuman(f"{program.name} needs {name}, which no package has", hint="add it to stage1-packages")
            found[name] = candidates[0]
            queue.append(candidates[0])
    return found


def scripts(trees: tuple[Path, ...]) -> list[cpio.CpioEntry]:
    """The files of the trees; of one name, that of the last tree."""
    files = {file.relative_to(tree): file for tree in trees for file in tree.rglob("*") if file.is_file()}
    return [
        cpio.file(str(name), file.read_bytes(), 0o755 if os.access(file, os.X_OK) else 0o644)
        for name, file in sorted(files.items())
    ]


def _modules(base: Base) -> list[cpio.CpioEntry]:
    folder = Path("lib/modules") / base.versions["kernel"]
    return [
        cpio.file(str(folder / file.relative_to(base.stage1_modules)), file.read_bytes())
        for file in sorted(base.stage1_modules.rglob("*"))
        if file.is_file()
    ]
