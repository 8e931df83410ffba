"""Marks in a store: images of which the object is being deleted. Written before the act, so that the next run goes on.

<store>/.collecting/sha256-<hex>      its text: the registry that the image was to be deleted from, if any
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from provisioner.api.machinery.values import Sha256Digest
from provisioner.image.finished.store import digest_of_folder, folder_name

COLLECTING: Final = ".collecting"
_MAX_BYTES: Final = 1024


def read_marks(store: Path) -> dict[Sha256Digest, str]:
    """By image, the registry; empty without one."""
    folder = store / COLLECTING
    found: dict[Sha256Digest, str] = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        digest = digest_of_folder(file)
        if digest is not None:
            with file.open("rb") as stream:
                found[digest] = stream.read(_MAX_BYTES).decode(errors="replace").strip()
    return found


def write_mark(store: Path, digest: Sha256Digest, registry: str) -> None:
    """It is on the disk when this returns."""
    folder = store / COLLECTING
    folder.mkdir(mode=0o755, exist_ok=True)
    with (folder / folder_name(digest)).open("w") as stream:
        stream.write(f"{registry}\n")
        stream.flush()
        os.fsync(stream.fileno())
    sync_folder(folder)
    sync_folder(store)


def clear_mark(store: Path, digest: Sha256Digest) -> None:
    (store / COLLECTING / folder_name(digest)).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """What was renamed in it, or deleted, is so after a loss of power, too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
