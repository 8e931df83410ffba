"""Which boot host is asked for a file, and which one gave a false one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.boot.cache.paths import ImageFilePath

REFUSED_SECONDS: Final = 600.0
"""So long a boot host that gave a false file is not asked for that one."""
SILENT_SECONDS: Final = 30.0
"""So long one that did not answer is asked after all others."""
MOST_REFUSALS: Final = 100


@dataclass(frozen=True)
class WrongContent:
    """A boot host gave what is not the file of that name. observed: SHA-256 of what it gave; time: since 1970."""

    boot_host: str
    path: str
    observed: str
    time: float


class BootHosts:
    """urls: without a path, the preferred one first. Any thread may call."""

    def __init__(self, urls: Sequence[str], clock: Callable[[], float] = time.time) -> None:
        self.urls, self._clock = tuple(urls), clock
        self._lock = threading.Lock()
        self._refusals: list[WrongContent] = []
        self._silent: dict[str, float] = {}

    @property
    def refusals(self) -> list[WrongContent]:
        """The last ones."""
        with self._lock:
            return list(self._refusals)

    def to_ask(self, asked: ImageFilePath) -> list[str]:
        """In this order, that which gave a false one latest last; none where all did a short while ago."""
        now = self._clock()
        with self._lock:
            refused = {
                refusal.boot_host: now - refusal.time for refusal in self._refusals if refusal.path == asked.path
            }
            silent = {url for url, since in self._silent.items() if now - since < SILENT_SECONDS}
        usable = (url for url in self.urls if refused.get(url, REFUSED_SECONDS) >= REFUSED_SECONDS)
        return sorted(usable, key=lambda url: (-refused.get(url, math.inf), url in silent))

    def refuse(self, url: str, asked: ImageFilePath, observed: str) -> None:
        """What it gave has another digest."""
        with self._lock:
            self._refusals = [*self._refusals, WrongContent(url, asked.path, observed, self._clock())][-MOST_REFUSALS:]

    def note_silence(self, url: str) -> None:
        """It did not answer, or too slowly."""
        with self._lock:
            self._silent[url] = self._clock()

    def note_answer(self, url: str) -> None:
        with self._lock:
            self._silent.pop(url, None)
