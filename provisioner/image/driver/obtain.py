"""The driver's packages as files, and the chroot in which modules are compiled: made once for what was asked for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.driver.plan import WantedDriver, obtain_command
from provisioner.image.plan import DEBS
from provisioner.image.tools.command import clean_environment, run
from provisioner.image.tools.foreign import ForeignPrograms


@dataclass(frozen=True)
class Obtained:
    """What was obtained, in the cache. Only the folder in which modules are compiled is ever written to."""

    chroot: Path

    def packages(self) -> Iterator[tuple[str, Path]]:
        """Name and file of each package, sorted by name."""
        for file in sorted((self.chroot / DEBS).glob("*.deb")):
            yield file.name.split("_", 1)[0], file

    def package(self, name: str) -> Path:
        """Raises: NeedsHuman if it was not obtained."""
        for each, file in self.packages():
            if each == name:
                return file
        raise NeedsHuman(
            f"package {name} was not obtained", hint="correct driver.distribution of the recipe, or build with --force"
        )


def obtain(wanted: WantedDriver, source_date_epoch: int, folder: Path, foreign: ForeignPrograms) -> Obtained:
    """Make `folder`, which appears only when it is whole; what is there already is taken.

    Raises: NeedsHuman if the archive cannot be reached or lacks a package.
    """
    if folder.is_dir():
        folder.touch()
        return Obtained(folder)
    work = folder.with_name(folder.name + ".partial")
    shutil.rmtree(work, ignore_errors=True)
    work.parent.mkdir(parents=True, exist_ok=True)
    archives = ", ".join(sorted({f"{each.uri} ({each.suite} {' '.join(each.components)})" for each in wanted.archives}))
    log = folder.with_name(folder.name + ".log")
    run(
        foreign.command(obtain_command(wanted, work)),
        hint=f"the package archive {archives} must be reachable from here and have the driver's packages for kernel "
        f"{wanted.release}; where it has a newer kernel by now, build the base anew with --force; log: {log}",
        environment=clean_environment(source_date_epoch),
        log=log,
    )
    work.rename(folder)
    return Obtained(folder)
