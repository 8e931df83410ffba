"""Hashes in turn what a cache host keeps: disks rot, and somebody may have written on one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

from provisioner.boot.cache.kept import KeptFiles
from provisioner.boot.cache.paths import MANIFEST_BYTES, ImageFilePath, expected_digest

log = structlog.get_logger(__name__)

EACH_SECONDS: Final = 24 * 3600.0
"""So often each file, and all that an earlier run left at the start."""
PAUSE_SECONDS: Final = 2.0


class Rechecker:
    """One thread calls. clock: seconds since 1970."""

    def __init__(self, kept: KeptFiles, clock: Callable[[], float] = time.time) -> None:
        self._kept, self._clock = kept, clock
        self._checked: dict[ImageFilePath, float] = {}
        self.thrown_away = 0

    def run(self, stop: threading.Event, pause_seconds: float = PAUSE_SECONDS) -> None:
        while not stop.wait(pause_seconds):
            try:
                self.check_next()
            except OSError as error:
                log.error("kept files were not checked", error=str(error), remedy="look at this host's disk")

    def check_next(self) -> None:
        """The file whose turn it is, if there is one: the latest used first."""
        now = self._clock()
        files = [file.asked for file in reversed(self._kept.all())]
        self._checked = {asked: self._checked[asked] for asked in files if asked in self._checked}
        due = next((asked for asked in files if now - self._checked.get(asked, 0.0) >= EACH_SECONDS), None)
        if due is not None:
            self._check(due)
            self._checked[due] = now

    def _check(self, asked: ImageFilePath) -> None:
        manifest = self._kept.read(asked.manifest, MANIFEST_BYTES) if asked.manifest is not None else None
        expected, observed = expected_digest(asked, manifest), self._kept.hash(asked)
        if observed is None or observed == expected:
            return
        self._kept.discard(asked)
        self.thrown_away += 1
        log.error(
            "kept file was thrown away",
            path=asked.path,
            observed=observed,
            expected=expected or "a manifest that names it",
            remedy="it is fetched again once it is asked for; if it happens again, look at this host's disk and memory",
        )
