"""The image store: `<store>/sha256-<hex>/{manifest,manifest.sig,vmlinuz,stage1.img,root.squashfs}`, whole or absent."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import uuid
from pathlib import Path

from provisioner.api.values import Sha256Digest
from provisioner.image.finished.manifest import FILES, MANIFEST, SIGNATURE, File

_FOLDER = re.compile(r"sha256-([0-9a-f]{64})")


def folder_name(digest: Sha256Digest) -> str:
    """`sha256:9f3c…` → `sha256-9f3c…`: a colon would have to be escaped in URLs and file systems."""
    return digest.replace(":", "-")


def digest_of_folder(folder: Path) -> Sha256Digest | None:
    """The digest that a folder's name claims; None for another name."""
    match = _FOLDER.fullmatch(folder.name)
    return Sha256Digest(f"sha256:{match[1]}") if match else None


def measure(file: Path) -> File:
    """Digest and size of a file."""
    with file.open("rb") as stream:
        return File(hashlib.file_digest(stream, "sha256").hexdigest(), file.stat().st_size)


def put(source: Path, store: Path, digest: Sha256Digest) -> Path:
    """Copy an image into the store: whole under its name, or not at all. An image that is there already stays."""
    target = store / folder_name(digest)
    if target.is_dir():
        return target
    store.mkdir(parents=True, exist_ok=True)
    partial = store / f".{target.name}.{uuid.uuid4().hex}"
    partial.mkdir(mode=0o755)
    try:
        for name in (MANIFEST, SIGNATURE, *FILES.values()):
            _copy(source / name, partial / name)
        try:
            partial.rename(target)
        except OSError:
            if not target.is_dir():  # else another publisher was faster; the name says that it is the same image
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
        writer.flush()
        os.fsync(writer.fileno())
    target.chmod(0o644)
