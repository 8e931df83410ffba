"""What was unpacked, for the bill of materials, and under what each package's files may be passed on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.driver.trim import moved
from provisioner.image.driver_recipe import FileMove, Licence
from provisioner.image.gates.packages.records import Records, describe_package
from provisioner.image.tools.command import run


@dataclass(frozen=True)
class Terms:
    """Under what files of `package` may be passed on.

    `licence` is an SPDX expression, `LicenseRef-…` for what SPDX has none for; `words` say what it means here. The
    whole text is in the layer: usr/share/doc/<package>/copyright.
    """

    package: str
    version: str
    licence: str
    words: str
    redistributable: bool


def upstream(version: str) -> str:
    """`1:550.163.01-2` → `550.163.01`: the version that the driver itself knows."""
    return version.split(":", 1)[-1].rsplit("-", 1)[0]


def unpack(file: Path, target: Path, moves: Sequence[FileMove] = ()) -> Records:
    """Unpack a package's files (none of its scripts runs), and say what it is, its files where `moves` bring them."""
    damaged = "the download is damaged; build again with --force"
    target.mkdir(parents=True, exist_ok=True)
    control = run(["dpkg-deb", "--field", str(file)], hint=damaged).decode()
    names = run(["dpkg-deb", "--vextract", str(file), str(target)], hint=damaged).decode().splitlines()
    paths = [name.removeprefix("./") for name in names if not name.endswith("/")]
    return describe_package(control, target, [moved(path, moves) for path in paths])


def with_files(records: Records, name: str, files: Iterable[str]) -> Records:
    """The same, where package `name` has those files as well: what was made of its source."""
    return dataclasses.replace(
        records,
        packages=tuple(
            dataclasses.replace(each, files=tuple(sorted({*each.files, *files}))) if each.name == name else each
            for each in records.packages
        ),
    )


def terms_of(records: Records, licences: Sequence[Licence]) -> tuple[Terms, ...]:
    """Raises: NeedsHuman if the recipe says no licence of a package whose files go into the image."""
    found = []
    for package in records.packages:
        licence = next(
            (each for each in licences if any(fnmatchcase(package.name, one) for one in each.packages)), None
        )
        if licence is None:
            raise NeedsHuman(
                f"the recipe says no licence of package {package.name}, whose files go into the image",
                hint="read its copyright file, and add it to [[driver.licences]]",
            )
        found.append(Terms(package.name, package.version, licence.identifier, licence.reason, licence.redistributable))
    return tuple(found)
