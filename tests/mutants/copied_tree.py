"""A copy of a checkout, in which faults are planted one at a time.

Stale bytecode must not hide a fault, but a run that compiles every module takes longer than its tests. So the copy is
compiled once, into files that hold the digest of their source: Python then ignores the one of the file with the fault.
A program that a test starts may write bytecode that holds time and size instead, so each write of a file gets a time of
its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from tests.mutants.fault import Fault, plant

NOT_DIGESTED: Final = "tests/mutants/"
"""Another set of faults makes no other tree."""
LONG_AGO: Final = 1_000_000_000
"""No file that is copied is that old."""


class CopiedTree:
    """`root` has what git knows, or would add, of the checkout; `digest` names its content."""

    def __init__(self, source: Path, root: Path, *, python: str = sys.executable) -> None:
        listed = subprocess.run(
            ["git", "-C", source, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True, check=True,
        )  # fmt: skip
        digest = hashlib.sha256()
        for name in sorted({os.fsdecode(name) for name in listed.stdout.split(b"\0") if name}):
            original, copy = source / name, root / name
            if not original.is_symlink() and not original.is_file():
                continue  # deleted, and git does not know yet
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(original, copy, follow_symlinks=False)
            if not name.startswith(NOT_DIGESTED):
                content = os.fsencode(copy.readlink()) if copy.is_symlink() else copy.read_bytes()
                digest.update(f"{name} {copy.lstat().st_mode} {len(content)}\n".encode() + content)
        self.root = root
        self.digest = digest.hexdigest()
        self._times = count(LONG_AGO, 2)
        subprocess.run(
            [python, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", root],
            check=False,
            stdout=subprocess.DEVNULL,
        )

    @contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """The fault is in its file for as long as the block runs.

        Raises: NotApplicable, before anything is written.
        """
        path = self.root / fault.file
        text = plant(fault, self.root)
        original = path.read_text()
        self._write(path, text)
        try:
            yield
        finally:
            self._write(path, original)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text)
        moment = next(self._times)
        os.utime(path, (moment, moment))


def commit_of(source: Path) -> str:
    """The short name of the commit that is checked out."""
    return subprocess.run(
        ["git", "-C", source, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
