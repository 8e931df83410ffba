"""What was unpacked, for the bill of materials: name, version, and under what it may be passed on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from provisioner.api.errors import NeedsHuman
from provisioner.image.command import run
from provisioner.image.driver.recipe import Licence


@dataclass(frozen=True, kw_only=True)
class InstalledPackage:
    """A package whose files are in a layer though no package manager knows of it.

    `licence` is an SPDX expression, `LicenseRef-…` for what SPDX has none for; `terms` says in words what it means.
    `licence_path` is that of the whole text, below the root.
    """

    name: str
    version: str
    architecture: str
    licence: str
    terms: str
    redistributable: bool
    licence_path: str | None


def upstream(version: str) -> str:
    """`1:550.163.01-2` → `550.163.01`: the version that the driver itself knows."""
    return version.split(":", 1)[-1].rsplit("-", 1)[0]


def read_package(file: Path, licences: Iterable[Licence], root: Path) -> InstalledPackage:
    """Of a package's own control file. Raises: NeedsHuman if no licence of the recipe names it."""
    fields = ("Package", "Version", "Architecture")
    said = run(
        ["dpkg-deb", "--field", str(file), *fields], hint="the download is damaged; build again with --force"
    ).decode()
    control = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    name = control["Package"]
    licence = next((each for each in licences if any(fnmatchcase(name, one) for one in each.packages)), None)
    if licence is None:
        raise NeedsHuman(
            f"the recipe says no licence of package {name}, whose files go into the image",
            hint="read its copyright file, and add it to [[driver.licences]]",
        )
    text = f"usr/share/doc/{name}/copyright"
    return InstalledPackage(
        name=name,
        version=control["Version"],
        architecture=control["Architecture"],
        licence=licence.identifier,
        terms=licence.reason,
        redistributable=licence.redistributable,
        licence_path=text if (root / text).is_file() else None,
    )
