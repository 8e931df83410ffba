"""Signatures of manifests. They have no digest of their own, so a boot host is asked again after some minutes, and what
it gave last stands in for one that does not answer. Who boots verifies them."""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from provisioner.boot.cache.boot_hosts import BootHosts
from provisioner.boot.cache.growing import DownloadFailed, DownloadFailure
from provisioner.boot.cache.paths import ImageFilePath
from provisioner.node.image.answer import Declined, PartialBody

FRESH_SECONDS: Final = 600.0
MOST_BYTES: Final = 4096
MOST_FILES: Final = 1000


class Signatures:
    """In `folder`, one file an image. clock: seconds since 1970."""

    def __init__(self, folder: Path, boot_hosts: BootHosts, clock: Callable[[], float]) -> None:
        self._folder, self._boot_hosts, self._clock = folder, boot_hosts, clock

    def read(self, asked: ImageFilePath) -> bytes:
        """Raises: DownloadFailed."""
        file = self._folder / asked.folder
        kept, age = self._kept(file)
        if kept is not None and 0 <= age < FRESH_SECONDS:
            return kept
        failure = DownloadFailure(502, "no boot host is left to ask")
        for url in self._boot_hosts.to_ask(asked):
            try:
                content = self._fetch(url, asked)
            except Declined as error:
                failure = DownloadFailure(404 if error.status == 404 else 502, f"{url}: {error}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._boot_hosts.note_silence(url)
                failure = DownloadFailure(502, f"{url}: {error}")
            else:
                self._keep(file, content)
                return content
        if kept is None:
            raise DownloadFailed(failure)
        return kept

    def _fetch(self, url: str, asked: ImageFilePath) -> bytes:
        content = b""
        with PartialBody(url + asked.path, 0, size_bytes=MOST_BYTES, least_rate=None) as answer:
            while len(content) <= MOST_BYTES and (piece := answer.read(MOST_BYTES + 1 - len(content))):
                content += piece
            if len(content) > MOST_BYTES or answer.left_bytes:
                raise OSError(f"no signature: {len(content)} bytes came")
        return content

    def _kept(self, file: Path) -> tuple[bytes | None, float]:
        try:
            return file.read_bytes(), self._clock() - file.stat().st_mtime
        except OSError:
            return None, 0.0

    def _keep(self, file: Path, content: bytes) -> None:
        with suppress(OSError):  # without it each is asked for again
            if sum(1 for _ in self._folder.iterdir()) < MOST_FILES or file.exists():
                file.write_bytes(content)
                os.utime(file, (self._clock(), self._clock()))
