"""What was unpacked, for the bill of materials, and under what each package's files may be passed on."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.image.driver.trim import moved
from provisioner.image.driver_recipe import FileMove, Licence
from provisioner.image.gates.packages.installed import InstalledPackage
from provisioner.image.gates.packages.records import Records, describe_package
from provisioner.image.tools.command import run


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


def licence_of(package: InstalledPackage, licences: Iterable[Licence]) -> Licence:
    """Under what its files may be passed on. Raises: NeedsHuman if the recipe does not say it."""
    for licence in licences:
        if any(fnmatchcase(package.name, pattern) for pattern in licence.packages):
            return licence
    raise NeedsHuman(
        f"the recipe says no licence of package {package.name}, whose files go into the image",
        hint="read its copyright file, and add it to [[driver.licences]]",
    )
