"""The image store: images by the digest of their manifest, their parts by their own; whole or absent.

    <store>/sha256-<hex>/manifest, manifest.sig
    <store>/parts/sha256-<hex>

Of format 1 an image's folder has its files, too: vmlinuz, stage1.img, root.squashfs. An image's folder appears last,
and with one rename: where it is, the image is whole. Parts that no image names are what a writer left that was ended;
whoever deletes any holds the store's lock alone (`retention.collect.alone`), as all who write share it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished.manifest import (
    FILES,
    MANIFEST,
    PARTS,
    SIGNATURE,
    FileDigest,
    ImagePart,
    Manifest,
    decode,
    digest_of,
    part_path,
)

LOCK: Final = ".lock"
_FOLDER = re.compile(r"sha256-([0-9a-f]{64})")
_PIECE_BYTES: Final = 1 << 20


def folder_name(digest: Sha256Digest) -> str:
    """`sha256:9f3c…` → `sha256-9f3c…`: a colon would have to be escaped in URLs and file systems."""
    return digest.replace(":", "-")


def digest_of_folder(folder: Path) -> Sha256Digest | None:
    """The digest that a folder's name claims; None for another name."""
    match = _FOLDER.fullmatch(folder.name)
    return Sha256Digest(f"sha256:{match[1]}") if match else None


def part_file(folder: Path, manifest: Manifest, part: ImagePart) -> Path:
    """Where a part of the image in `folder` lies: in the folder (format 1), or in the store that the folder is in."""
    return folder / FILES[part.name] if manifest.format == 1 else folder.parent / part.path


def read_manifest(folder: Path) -> Manifest:
    """Of the image in `folder`. Raises: OSError without one; Refused if it is none."""
    return decode((folder / MANIFEST).read_bytes())


def part_files(folder: Path) -> dict[str, Path]:
    """All parts of the image in `folder`, by name (kernel, stage1, layer.base…). Raises: as read_manifest."""
    manifest = read_manifest(folder)
    return {part.name: part_file(folder, manifest, part) for part in manifest.parts()}


def measure(file: Path) -> FileDigest:
    """Digest and size of a file."""
    with file.open("rb") as stream:
        return FileDigest(hashlib.file_digest(stream, "sha256").hexdigest(), file.stat().st_size)


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Share the store's lock with all who add to it. Waits for as long as it takes."""
    store.mkdir(parents=True, exist_ok=True)
    with (store / LOCK).open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)
        yield


def put(source: Path, store: Path, digest: Sha256Digest) -> Path:
    """Copy the image in the folder `source` into `store`: whole under its name, or not at all. What is there stays.

    Raises: OSError if a file is missing; Refused if one is not what the manifest says.
    """
    text, signature = (source / MANIFEST).read_bytes(), (source / SIGNATURE).read_text()
    if digest_of(text) != digest:
        raise Refused(f"image {source} holds the manifest {digest_of(text)}, not {digest}", hint="name its own folder")
    return put_image(store, text, signature, part_files(source))


def put_image(store: Path, manifest: bytes, signature: str | None, files: Mapping[str, Path]) -> Path:
    """Write an image into `store` from its manifest, that one's signature, and its parts' files by name.

    signature: None if it is to be signed elsewhere; until then it lies there without one, and nothing takes it for an
    image. Returns: its folder. Raises: as put.
    """
    known, folder = decode(manifest), store / folder_name(digest_of(manifest))
    with locked(store):
        if known.format == 2:
            for part in known.parts():
                put_part(store, files[part.name], part.file)
            beside: dict[str, Path] = {}
        else:
            beside = {FILES[part.name]: files[part.name] for part in known.parts()}
        if folder.is_dir():
            os.utime(folder)  # who collects garbage takes it for new: its Image object may be about to be written
            if signature is not None and not (folder / SIGNATURE).exists():
                write_signature(folder, signature)  # it was signed elsewhere meanwhile
            return folder
        partial = store / f".{folder.name}.{uuid.uuid4().hex}"
        partial.mkdir(mode=0o755)
        try:
            for name, file in beside.items():
                write_whole(partial / name, _pieces(file))
            write_whole(partial / MANIFEST, [manifest])
            if signature is not None:
                write_whole(partial / SIGNATURE, [signature.encode()])
            sync_folder(partial)
            try:
                partial.rename(folder)
            except OSError:
                if not folder.is_dir():  # else another writer was faster; the name says that it is the same image
                    raise
            sync_folder(store)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return folder


def write_signature(folder: Path, signature: str) -> Path:
    """Put the signature beside a manifest, whole or not at all. Returns: its file."""
    target = folder / SIGNATURE
    partial = folder / f".{SIGNATURE}.{uuid.uuid4().hex}"
    try:
        write_whole(partial, [signature.encode()])
        partial.rename(target)
        sync_folder(folder)
    finally:
        partial.unlink(missing_ok=True)
    return target


def put_part(store: Path, source: Path, expected: FileDigest) -> Path:
    """Copy one part into `store`, whose lock the caller holds. One that is there and whole stays.

    Raises: Refused if `source` is not what is expected.
    """
    target = store / part_path(expected.sha256)
    try:
        # Read as well: what the disk has spoiled is mended by publishing the image again, as everybody is told.
        if target.stat().st_size == expected.size_bytes and measure(target) == expected:
            return target
    except FileNotFoundError:
        (store / PARTS).mkdir(mode=0o755, exist_ok=True)
    partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        observed = write_whole(partial, _pieces(source))
        if observed != expected:
            raise Refused(
                f"{source} has {observed.size_bytes} bytes with sha256 {observed.sha256}, its manifest says "
                f"{expected.size_bytes} with {expected.sha256}",
                hint="publish the image again from its build",
            )
        partial.rename(target)
        sync_folder(target.parent)
    finally:
        partial.unlink(missing_ok=True)
    return target


def write_whole(target: Path, pieces: Iterable[bytes]) -> FileDigest:
    """Write `pieces` into a new file that all may read, down to the disk. Returns: what was written."""
    whole, size = hashlib.sha256(), 0
    with target.open("xb") as writer:
        for piece in pieces:
            whole.update(piece)
            size += writer.write(piece)
        writer.flush()
        os.fsync(writer.fileno())
    target.chmod(0o644)
    return FileDigest(whole.hexdigest(), size)


def _pieces(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        while piece := stream.read(_PIECE_BYTES):
            yield piece


def sync_folder(folder: Path) -> None:
    """What was renamed into it, or deleted, is so after a loss of power, too, and not before what it names."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
