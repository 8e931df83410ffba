"""The pause image from an OCI archive that the caller has pinned, such as `skopeo copy` makes of a registry's image.

Everything is reached from the pinned digest by digests, so nothing in the archive is believed beyond it; what could
write outside the container's root, or is more than a pause image needs, is refused.

Source: OCI image specification, image-layout.md, image-index.md and layer.md.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import stat
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from provisioner.api.machinery.errors import NeedsHuman, NotFound
from provisioner.api.servers.server import Architecture
from provisioner.image.containerd.pause import GO_NAMES, Blob, PauseImage, UnpackedFile
from provisioner.image.finished.manifest import digest_of

MOST_ARCHIVE_BYTES: Final = 64 << 20
MOST_LAYER_BYTES: Final = 16 << 20
MOST_FILES: Final = 64

_PINNED: Final = re.compile(r"(.+)@(sha256:[0-9a-f]{64})")
_INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_REMEDY: Final = "give an OCI archive of a pause image: skopeo copy docker://… oci-archive:pause.tar"


@dataclass(frozen=True)
class PinnedArchive:
    """An OCI archive, and the digest of the manifest or index in it that is meant."""

    file: Path
    digest: str


def parse_pinned(text: str) -> PinnedArchive:
    """Read `FILE@sha256:…`. Raises: NeedsHuman if there is no digest."""
    found = _PINNED.fullmatch(text)
    if found is None:
        raise NeedsHuman(
            f"pause archive {text!r} is not pinned", hint="write FILE@sha256:… with the digest that the registry says"
        )
    return PinnedArchive(Path(found[1]), found[2])


def read_archive(pinned: PinnedArchive, architecture: Architecture) -> PauseImage:
    """The pinned image for `architecture`.

    Raises: NotFound without the file; NeedsHuman if the digest is not in it, or a part of it is not what its digest
    says, is for another architecture, has more than one layer, or links, devices or paths that lead out of it.
    """
    if not pinned.file.is_file():
        raise NotFound(f"pause archive {pinned.file} does not exist", hint=_REMEDY)
    blobs = _Blobs(pinned.file)
    manifest_digest = pinned.digest
    manifest = blobs.json(manifest_digest)
    if manifest.get("mediaType") in _INDEXES or "manifests" in manifest:
        manifest_digest = _for_architecture(manifest, architecture, pinned)
        manifest = blobs.json(manifest_digest)
    try:
        (layer,) = manifest["layers"]
        config, media_types = manifest["config"], [manifest["config"]["mediaType"], layer["mediaType"]]
        parts = [
            Blob(kind, blobs.read(each["digest"])) for kind, each in zip(media_types, (config, layer), strict=True)
        ]
        settings = json.loads(parts[0].content)
        made_for, (diff_id,) = (settings["os"], settings["architecture"]), settings["rootfs"]["diff_ids"]
    except (KeyError, TypeError, ValueError) as error:
        raise NeedsHuman(
            f"{pinned.file}: {manifest_digest} is no image of one layer: {error!r}", hint=_REMEDY
        ) from error
    if made_for != ("linux", GO_NAMES[architecture]):
        raise NeedsHuman(f"{pinned.file}: {manifest_digest} is for {'/'.join(made_for)}", hint=f"give {architecture}'s")
    content = _uncompressed(parts[1].content, pinned)
    if digest_of(content) != diff_id:
        raise NeedsHuman(f"{pinned.file}: the layer unpacks to another content than {diff_id}", hint=_REMEDY)
    media_type = str(manifest.get("mediaType") or "application/vnd.oci.image.manifest.v1+json")
    return PauseImage(
        parts[1], parts[0], Blob(media_type, blobs.read(manifest_digest)), diff_id, _unpack(content, pinned)
    )


class _Blobs:
    """The blobs of an OCI layout in a tar archive; each is checked against the digest that it is asked for by."""

    def __init__(self, file: Path) -> None:
        self._file = file
        if file.stat().st_size > MOST_ARCHIVE_BYTES:
            raise NeedsHuman(
                f"{file} has {file.stat().st_size} bytes, expected at most {MOST_ARCHIVE_BYTES}", hint=_REMEDY
            )
        try:
            self._archive = tarfile.open(fileobj=io.BytesIO(file.read_bytes()), mode="r:")  # noqa: SIM115 - of memory
            self._members = {member.name.removeprefix("./"): member for member in self._archive}
        except tarfile.TarError as error:
            raise NeedsHuman(f"{file} is not a tar archive: {error}", hint=_REMEDY) from error

    def read(self, digest: str) -> bytes:
        member = self._members.get(f"blobs/{digest.replace(':', '/', 1)}")
        stream = self._archive.extractfile(member) if member is not None and member.isreg() else None
        if stream is None:
            raise NeedsHuman(f"{self._file} has no {digest}", hint="give the archive of that image, or its own digest")
        content = stream.read()
        if digest_of(content) != digest:
            raise NeedsHuman(f"{self._file}: what is called {digest} has another content", hint="fetch it again")
        return content

    def json(self, digest: str) -> dict[str, Any]:
        try:
            data = json.loads(self.read(digest))
        except (ValueError, RecursionError) as error:
            raise NeedsHuman(f"{self._file}: {digest} is not JSON", hint=_REMEDY) from error
        if not isinstance(data, dict):
            raise NeedsHuman(f"{self._file}: {digest} is not a JSON object", hint=_REMEDY)
        return data


def _for_architecture(index: Mapping[str, Any], architecture: Architecture, pinned: PinnedArchive) -> str:
    wanted = ("linux", GO_NAMES[architecture])
    for each in index.get("manifests") or ():
        platform = each.get("platform") or {}
        if (platform.get("os"), platform.get("architecture")) == wanted:
            return str(each["digest"])
    raise NeedsHuman(
        f"{pinned.file}: {pinned.digest} has no image for {'/'.join(wanted)}",
        hint="copy all of it (skopeo copy --all), or give that architecture's",
    )


def _uncompressed(content: bytes, pinned: PinnedArchive) -> bytes:
    if content[:2] != b"\x1f\x8b":
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            unpacked = stream.read(MOST_LAYER_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise NeedsHuman(f"{pinned.file}: the layer is not gzip after all: {error}", hint=_REMEDY) from error
    if len(unpacked) > MOST_LAYER_BYTES:
        raise NeedsHuman(f"{pinned.file}: the layer unpacks to more than {MOST_LAYER_BYTES} bytes", hint=_REMEDY)
    return unpacked


def _unpack(content: bytes, pinned: PinnedArchive) -> tuple[UnpackedFile, ...]:
    files: dict[str, UnpackedFile] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                plain = not path.is_absolute() and ".." not in path.parts and not path.name.startswith(".wh.")
                if not plain or not (member.isreg() or member.isdir()) or len(files) >= MOST_FILES:
                    raise NeedsHuman(f"{pinned.file}: the layer has {member.name!r}, no plain file", hint=_REMEDY)
                stream = archive.extractfile(member)
                if stream is not None:
                    mode = 0o755 if member.mode & stat.S_IXUSR else 0o644
                    files[str(path)] = UnpackedFile(str(path), mode, stream.read())
    except tarfile.TarError as error:
        raise NeedsHuman(f"{pinned.file}: the layer is not a tar archive: {error}", hint=_REMEDY) from error
    return tuple(files.values())
