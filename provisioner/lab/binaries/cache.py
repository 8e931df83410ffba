"""The cache of programs: one directory a content, made by one process at a time, there completely or not at all."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from provisioner.api.errors import NeedsHuman

VERSION: Final = "v1.36.3"
"""Kubernetes version that the lab runs."""

NAMES: Final = ("kube-apiserver", "kube-controller-manager", "kubelet", "kubectl", "kube-scheduler")
OPTIONAL: Final = frozenset({"kube-scheduler"})

Report = Callable[[str], None]
"""Takes a line that tells a waiting person what happens."""


def architecture() -> str:
    """This machine's, in Go's words. Raises: NeedsHuman on one for which Kubernetes is not released."""
    known = {"x86_64": "amd64", "aarch64": "arm64"}
    machine = platform.machine()
    if machine not in known:
        raise NeedsHuman(f"no Kubernetes for {machine}", hint="run the lab on x86_64 or aarch64")
    return known[machine]


def missing_in(directory: Path, names: Sequence[str] = NAMES) -> list[str]:
    """Those of `names` that `directory` lacks; the optional ones do not count."""
    return [name for name in names if name not in OPTIONAL and not os.access(directory / name, os.X_OK)]


@contextmanager
def fill(entry: Path, report: Report, names: Sequence[str] = NAMES) -> Iterator[Path | None]:
    """Give an empty directory that becomes `entry` if the block ends well; None if another process was faster.

    `names`: the programs that the block puts there.
    """
    entry.parent.mkdir(parents=True, exist_ok=True)
    with (entry.parent / f".{entry.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that makes {entry}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if entry.exists() and not missing_in(entry, names):
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
