"""The licence of every package is recorded: who passes an image on passes these on with it."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from provisioner.image.gates.failure import GateFailure
from provisioner.image.gates.packages.records import Records
from provisioner.image.tools.command import require

# Licences as one archive: `licences/<package>/copyright`; of equal texts one, the others are links to it.

_LEVEL: Final = "-12"  # 19 takes ten times as long for 7 %


def licence_archive(records: Records, epoch: int) -> bytes:
    """A tar.zst, the same bytes for the same records. `epoch`: the time of every file, in seconds."""
    require("zstd")
    packed = subprocess.run(
        ["zstd", _LEVEL, "-q", "-c", "--single-thread"], input=_tar(records, epoch), stdout=subprocess.PIPE, check=True
    )
    return packed.stdout


def _tar(records: Records, epoch: int) -> bytes:
    stream = io.BytesIO()
    names = {f"common/{name}": digest for name, digest in records.common.items()}
    for package in records.packages:
        for number, digest in enumerate(package.licence_files):
            names[f"{package.name}/copyright{f'.{number}' if number else ''}"] = digest
    first: dict[str, str] = {}
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, digest in sorted(names.items()):
            member = tarfile.TarInfo(f"licences/{name}")
            member.mtime, member.mode = epoch, 0o644
            if digest in first:
                member.type = tarfile.SYMTYPE
                member.linkname = str(PurePosixPath("..") / first[digest])
                archive.addfile(member)
            else:
                first[digest] = name
                content = records.texts[digest].encode()
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


GATE: Final = "licences"


def check_licences(records: Records) -> Iterator[GateFailure]:
    """A package without its copyright file, and a file that was named and not kept."""
    if not records.packages:
        yield GateFailure(
            GATE, "packages", "none is known", "the packages of the root", "build the base again with --force"
        )
    for package in records.packages:
        if not package.licence_files:
            yield GateFailure(
                GATE,
                package.name,
                "no licence was recorded",
                "its usr/share/doc/<package>/copyright",
                "build the base again with --force; a package that has none does not belong into an image",
            )
        for digest in package.licence_files:
            if not records.texts.get(digest, "").strip():
                yield GateFailure(
                    GATE,
                    package.name,
                    f"its licence {digest[:12]} is empty",
                    "its text",
                    "build the base again with --force",
                )
