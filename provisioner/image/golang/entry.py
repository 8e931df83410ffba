"""An entry of the cache of programs: a folder that one process makes, and that is there completely or not at all."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

Report = Callable[[str], None]
"""Takes a line that tells a waiting person what happens."""


def missing_in(directory: Path, programs: Sequence[str]) -> list[str]:
    """Those of `programs`, paths relative to `directory`, that it lacks or that cannot be executed."""
    return [name for name in programs if not os.access(directory / name, os.X_OK)]


@contextmanager
def fill(entry: Path, report: Report, programs: Sequence[str]) -> Iterator[Path | None]:
    """Give an empty directory that becomes `entry` if the block ends well; None if another process was faster.

    `programs`: paths of what the block puts there.
    """
    entry.parent.mkdir(parents=True, exist_ok=True)
    with (entry.parent / f".{entry.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that makes {entry}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if entry.exists() and not missing_in(entry, programs):
            yield None
            return
        staging = Path(tempfile.mkdtemp(prefix=f".{entry.name}.", dir=entry.parent))
        try:
            yield staging
            staging.chmod(0o755)
            shutil.rmtree(entry, ignore_errors=True)  # of a process that died half-way in an older layout
            staging.rename(entry)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
