"""One layer: a tar.gz of a folder, the same bytes whoever owns the folder, wherever it lies, and whenever it was made.

Source: OCI Image Specification 1.1, "Image Layer Filesystem Changeset".
"""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LAYER_TYPE: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
FILE_TIME: Final = 1_767_225_600
"""Of every file in every layer, 2026-01-01: with the time of a build a layer that did not change would be another one,
and every node would fetch it again."""
_LEVEL: Final = 6  # 9 takes four times as long for 1 %


@dataclass(frozen=True)
class Layer:
    """A blob in memory. `diff_id`: digest of what is in it, unpacked. `called`: what the image's history says of it."""

    called: str
    content: bytes
    diff_id: str
    unpacked_bytes: int

    @property
    def digest(self) -> str:
        return "sha256:" + hashlib.sha256(self.content).hexdigest()


def pack(folder: Path, called: str) -> Layer:
    """All of the folder, but itself. Everything is root's; no file has more than read, write and execute."""
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts):
            _add(archive, path, str(path.relative_to(folder)))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", compresslevel=_LEVEL, mtime=0) as stream:
        stream.write(unpacked.getbuffer())
    whole = unpacked.getbuffer()
    return Layer(called, packed.getvalue(), "sha256:" + hashlib.sha256(whole).hexdigest(), len(whole))


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    member = tarfile.TarInfo(name)
    member.mtime = FILE_TIME
    if path.is_symlink():
        member.type, member.linkname, member.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
        archive.addfile(member)
    elif path.is_dir():
        # A folder for everybody to write into is the only mode that tells anything.
        member.type, member.mode = tarfile.DIRTYPE, 0o1777 if path.stat().st_mode & 0o1000 else 0o755
        archive.addfile(member)
    else:
        member.size, member.mode = path.stat().st_size, 0o755 if path.stat().st_mode & 0o100 else 0o644
        with path.open("rb") as content:
            archive.addfile(member, content)
