"""Wheels: those that the product needs, each by the hash that requirements/runtime.txt has for it."""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
import zipfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from artefacts.recipe import Machine
from provisioner.api.machinery.errors import Refused
from provisioner.image.gates.allowed import matches
from provisioner.image.golang import entry
from provisioner.image.tools.command import run

SITE: Final = PurePosixPath("usr/local/lib/python3.13/dist-packages")
"""Where Debian's Python looks for what did not come with Debian."""

_PLATFORMS: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_GLIBCS: Final = ("2014", "_2_17", "_2_27", "_2_28", "_2_31", "_2_34", "_2_35", "_2_39", "_2_41")
_MOST_BYTES: Final = 1 << 30
_NOT_A_LETTER: Final = re.compile(r"[-_.]+")


@dataclass(frozen=True)
class Wheel:
    """One file. `name` as an index has it: lower case, with hyphens."""

    file: Path
    name: str
    version: str

    @property
    def sha256(self) -> str:
        with self.file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()


def wheel_of(file: Path) -> Wheel:
    name, version, *_ = file.name.split("-")
    return Wheel(file, _NOT_A_LETTER.sub("-", name).lower(), version)


def download(requirements: Path, python: str, machine: Machine, cache: Path, report: entry.Report) -> list[Wheel]:
    """All wheels of `requirements` for that Python and machine, by name; nothing is built.

    Raises: NeedsHuman if pip cannot get one of them, or its hash is another.
    """
    digest = hashlib.sha256(requirements.read_bytes() + f"{python} {machine}".encode()).hexdigest()[:16]
    folder = cache / f"packages-wheels-{machine}-{digest}"
    with entry.fill(folder, report, ()) as staging:
        if staging is not None:
            report(f"downloading wheels for {machine}")
            run(
                download_command(requirements, python, machine, staging),
                hint="is the package index reachable, and does it have wheels of all requirements for that Python?",
            )
    return sorted((wheel_of(file) for file in folder.glob("*.whl")), key=lambda wheel: wheel.name)


def download_command(requirements: Path, python: str, machine: Machine, folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--no-deps"),
        *("--only-binary", ":all:", "--implementation", "cp", "--python-version", python),
        *(f"--platform=manylinux{glibc}_{_PLATFORMS[machine]}" for glibc in _GLIBCS),
        *("--requirement", str(requirements), "--dest", str(folder)),
    ]


def unpack_wheel(wheel: Wheel, root: Path, leave: Collection[str] = ()) -> None:
    """Lay its modules below `root`, without commands, headers and what `leave` matches.

    Raises: Refused if it has a file outside of its own folders, or is beyond measure.
    """
    with zipfile.ZipFile(wheel.file) as archive:
        if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
            raise Refused(f"{wheel.file} unpacks to more than {_MOST_BYTES} bytes", hint="is it what it says it is?")
        for member, path in _modules(archive, wheel):
            if any(matches(str(path), pattern) for pattern in leave):
                continue
            target = root / SITE / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, target.open("wb") as written:
                shutil.copyfileobj(source, written)
            target.chmod(0o755 if member.external_attr >> 16 & 0o111 else 0o644)


def _modules(archive: zipfile.ZipFile, wheel: Wheel) -> Iterator[tuple[zipfile.ZipInfo, PurePosixPath]]:
    for member in archive.infolist():
        path = PurePosixPath(member.filename)
        if path.is_absolute() or ".." in path.parts:
            raise Refused(f"{wheel.file} has a file {member.filename!r}", hint="do not use this wheel")
        if member.is_dir():
            continue
        if path.parts[0].endswith(".data"):
            if path.parts[1] not in ("purelib", "platlib"):
                continue
            path = PurePosixPath(*path.parts[2:])
        yield member, path
