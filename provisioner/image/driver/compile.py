"""Modules compiled against the image's own kernel, in a chroot, the same bytes wherever and whenever that is done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.api.servers.server import Architecture
from provisioner.image.driver.obtain import Obtained
from provisioner.image.driver.packages import unpack
from provisioner.image.driver.plan import COMPILED, compile_command, compile_environment
from provisioner.image.driver_recipe import ModuleSource, Replacement
from provisioner.image.tools.cache import filled
from provisioner.image.tools.command import run
from provisioner.image.tools.foreign import ForeignPrograms


def compile_modules(
    obtained: Obtained,
    source: ModuleSource,
    modules: Sequence[str],
    release: str,
    architecture: Architecture,
    source_date_epoch: int,
    folder: Path,
    foreign: ForeignPrograms,
    jobs: int | None = None,
) -> Path:
    """Compile into `folder`, which appears only when it is whole: `<module>.ko` for each, without debug information.

    Raises: NeedsHuman with the compiler's last words if the source does not fit the kernel.
    """
    if folder.is_dir():
        folder.touch()
        return folder
    chroot = obtained.chroot
    place = chroot / COMPILED.relative_to("/")
    shutil.rmtree(place, ignore_errors=True)
    headers = unpack_headers(obtained, release, architecture)
    _unpack_source(obtained, source, place)
    for replacement in source.replace:
        replace(replacement, place / source.folder, chroot / headers["sources"].lstrip("/"))
    environment = compile_environment(source_date_epoch)
    log = folder.with_name(folder.name + ".log")
    with filled(folder) as work:
        foreign.run_inside(
            chroot,
            compile_command(source, modules, headers, jobs or os.cpu_count() or 1),
            hint=f"driver and kernel {release} do not fit: add what changed to driver.distribution.….source.replace of "
            f"the recipe, or take a kernel that the driver knows; log: {log}",
            environment=environment,
            log=log,
        )
        for module in modules:
            made = COMPILED / source.folder / f"{module}.ko"
            strip = ["strip", "--strip-debug", str(made)]
            foreign.run_inside(
                chroot, strip, hint="correct source.tools of the recipe: binutils", environment=environment
            )
            shutil.copyfile(chroot / made.relative_to("/"), work / f"{module}.ko")
        shutil.rmtree(place)
    return folder


def unpack_headers(obtained: Obtained, release: str, architecture: Architecture) -> dict[str, str]:
    """Unpack the kernel's headers into the chroot, and say where they lie in it.

    Raises: NeedsHuman if they are not those of `release`.
    """
    for name, file in obtained.packages():
        if name.startswith(("linux-headers-", "linux-kbuild-")):
            unpack(file, obtained.chroot)
    modules = obtained.chroot / "usr/lib/modules" / release
    found = {}
    for what, link in (("sources", "source"), ("output", "build")):
        if not (modules / link).is_symlink():
            raise NeedsHuman(
                f"the headers of kernel {release} are not among what was obtained",
                hint="the archive has another kernel by now: build the base anew with --force",
            )
        found[what] = f"/usr/src/{(modules / link).readlink().name}"
    return {**found, "architecture": architecture}


def _unpack_source(obtained: Obtained, source: ModuleSource, place: Path) -> None:
    unpack(obtained.package(source.package), place / "package")
    run(
        ["tar", "--extract", "--no-same-owner", f"--file={place / 'package' / source.archive}", f"--directory={place}"],
        hint="correct source.archive of the recipe",
    )
    if not (place / source.folder).is_dir():
        raise NeedsHuman(
            f"{source.archive} of {source.package} has no folder {source.folder}", hint="correct the recipe's source"
        )


def replace(replacement: Replacement, folder: Path, headers: Path) -> bool:
    """Make the replacement if the kernel needs it, and say whether it was.

    Raises: NeedsHuman unless the file has what is to be replaced exactly once.
    """
    header = headers / replacement.header
    if not header.is_file() or replacement.header_has not in header.read_text(errors="replace"):
        return False
    file = folder / replacement.file
    text = file.read_text() if file.is_file() else ""
    count = text.count(replacement.old)
    if count != 1:
        raise NeedsHuman(
            f"{replacement.file} of the driver has {replacement.old!r} {count} times, not once",
            hint="correct source.replace of the recipe: the driver has changed",
        )
    file.write_text(text.replace(replacement.old, replacement.new))
    return True
