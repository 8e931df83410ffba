"""Folders of the build's cache: made by one build at a time, there whole or not at all, and the oldest forgotten."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def made(folder: Path) -> Path:
    """The folder, made if it was not there."""
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the lock `file`. Two builds at once (a demo and a test) need one of each thing; the second waits."""
    with (made(file.parent) / file.name).open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextmanager
def filled(folder: Path) -> Iterator[Path]:
    """An empty folder, which becomes `folder` once the block has ended well."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    yield partial
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def forget_old(parent: Path, kept: int) -> None:
    """Keep so many of the folders in `parent`: those that were used last."""
    if not parent.is_dir():
        return
    whole = [folder for folder in parent.iterdir() if folder.is_dir() and not folder.name.endswith(".partial")]
    for folder in sorted(whole, key=lambda folder: folder.stat().st_mtime)[:-kept]:
        shutil.rmtree(folder, ignore_errors=True)
