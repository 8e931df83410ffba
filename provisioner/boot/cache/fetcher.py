"""Fetches each file from a boot host once, for however many ask, and keeps what is what its name says.

A boot host that ends midway is left for the next one, which goes on; servers notice nothing. A file that is false as a
whole cuts off all who read it before its end, its boot host is named, and the next one is asked from the beginning.
"""

from __future__ import annotations

import hashlib
import http.client
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import BinaryIO, Final

import structlog

from provisioner.boot.cache.boot_hosts import BootHosts
from provisioner.boot.cache.growing import DownloadFailed, DownloadFailure, Growing, Whole
from provisioner.boot.cache.kept import KeptFiles, NoPlace
from provisioner.boot.cache.paths import MANIFEST_BYTES, ImageFilePath, expected_digest
from provisioner.node.image.answer import Declined, PartialBody, SourceFull

log = structlog.get_logger(__name__)

AT_ONCE: Final = 16
"""Files, each by a thread of its own; others wait."""
MOST_UNDER_WAY: Final = 1000
_CHUNK: Final = 1 << 18
_LARGEST: Final = 1 << 40
RESULTS: Final = ("kept", "false", "not_found", "full", "failed")
"""How a fetch ends. false: a boot host gave what is not the file; full: all boot hosts ask to come again."""
_ROUNDS: Final = 3
"""So often all boot hosts are asked in turn for the rest of a file."""


class Fetcher:
    """least_rate: what a boot host must give, in bytes/s. clock: seconds since 1970."""

    def __init__(self, kept: KeptFiles, boot_hosts: BootHosts, *, least_rate: int, clock: Callable[[], float]) -> None:
        self._kept, self._boot_hosts, self._least_rate, self._clock = kept, boot_hosts, least_rate, clock
        self._lock = threading.RLock()
        self._under_way: dict[ImageFilePath, Growing] = {}
        self._room = threading.BoundedSemaphore(AT_ONCE)
        self._reserved_bytes = 0
        self._counts = Counter[str]()
        self._fetched_bytes = 0

    def counts(self) -> Mapping[str, int]:
        """How many fetches ended in each of RESULTS since the start."""
        with self._lock:
            return {result: self._counts[result] for result in RESULTS}

    @property
    def fetched_bytes(self) -> int:
        """All that came from boot hosts since the start, whatever became of it."""
        return self._fetched_bytes

    @property
    def under_way(self) -> list[str]:
        """Paths of what is being fetched."""
        with self._lock:
            return sorted(asked.path for asked in self._under_way)

    def open(self, asked: ImageFilePath) -> Growing | Whole:
        """The file, from disk or as it comes. Raises: DownloadFailed, where too many are under way."""
        with self._lock:
            if self._kept.has(asked):
                return Whole(self._kept.path(asked))
            growing = self._under_way.get(asked)
            if growing is None:
                if len(self._under_way) >= MOST_UNDER_WAY:
                    raise DownloadFailed(DownloadFailure(503, f"{MOST_UNDER_WAY} other files are fetched"))
                growing = self._under_way[asked] = Growing()
                threading.Thread(target=self._run, args=(asked, growing), name="cache-fetch", daemon=True).start()
            return growing

    def _run(self, asked: ImageFilePath, growing: Growing) -> None:
        failure: DownloadFailure | None = DownloadFailure(500, "it could not be fetched")
        try:
            expected = expected_digest(asked, self._manifest_of(asked))
            if expected is None:
                failure = DownloadFailure(404, f"the manifest of {asked.folder} names no {asked.name}")
            else:
                with self._room:
                    failure = self._fetch(asked, growing, expected)
        except DownloadFailed as error:
            failure = error.failure
        except NoPlace as error:
            failure = DownloadFailure(502, f"{error}; give the cache a larger --disk")
        except OSError as error:
            failure = DownloadFailure(502, f"the cache's disk failed: {error}")
        finally:
            with self._lock:
                self._under_way.pop(asked, None)
                self._counts[_result_of(failure)] += 1
            growing.end(failure)
            if failure is not None:
                log.warning("file was not fetched", path=asked.path, error=failure.why, status=failure.status)

    def _fetch(self, asked: ImageFilePath, growing: Growing, expected: str) -> DownloadFailure | None:
        """None if it is kept now. Raises: OSError of the disk."""
        with self._kept.new() as file:
            part = _Part(asked, growing, file, self._least_rate, self._reserve, self._came)
            try:
                if (failure := self._fill(part)) is not None:
                    return failure
                if part.observed != expected:
                    return self._refuse(part, expected)
                self._kept.keep(asked, file, self._clock())
            finally:
                self._reserve(-part.size_bytes)
        log.info("file was kept", path=asked.path, boot_hosts=part.givers)
        return None

    def _came(self, size_bytes: int) -> None:
        with self._lock:
            self._fetched_bytes += size_bytes

    def _reserve(self, size_bytes: int) -> None:
        """Have room on disk for what is under way. Raises: NoPlace, and nothing is reserved."""
        with self._lock:
            if size_bytes > 0:
                self._kept.make_room(self._reserved_bytes + size_bytes)
            self._reserved_bytes += size_bytes

    def _manifest_of(self, asked: ImageFilePath) -> bytes | None:
        """Raises: DownloadFailed."""
        if asked.manifest is None:
            return None
        manifest = self.open(asked.manifest)
        manifest.wait_beyond(manifest.size_bytes - 1)
        return self._kept.read(asked.manifest, MANIFEST_BYTES)

    def _fill(self, part: _Part) -> DownloadFailure | None:
        """Get all of it, or say why not."""
        urls = self._boot_hosts.to_ask(part.asked)
        if not urls:
            return DownloadFailure(502, "all boot hosts have given a false one; they are asked again in some minutes")
        failures: list[DownloadFailure] = []
        for url in urls * _ROUNDS:
            before = part.have
            try:
                part.continue_from(url)
            except SourceFull:
                failures.append(DownloadFailure(503, f"{url} is full"))
            except Declined as error:
                failures.append(DownloadFailure(404 if error.status == 404 else 502, f"{url}: {error}"))
            except _WrittenNot as error:
                raise error.reason from error
            except (OSError, http.client.HTTPException, ValueError) as error:
                self._boot_hosts.note_silence(url)
                failures.append(DownloadFailure(502, f"{url}: {error or type(error).__name__}"))
            else:
                self._boot_hosts.note_answer(url)
                return None
            if part.have == before == 0 and len(failures) >= len(urls):
                break
        # Full is better news than absent, and both are than broken.
        worst = min(failures, key=lambda failure: (503, 404, 502).index(failure.status))
        return DownloadFailure(worst.status, "; ".join(dict.fromkeys(failure.why for failure in failures)))

    def _refuse(self, part: _Part, expected: str) -> DownloadFailure:
        if len(part.givers) > 1:
            # Nobody can say whose piece is false. Who ended in the middle is asked last the next time.
            return DownloadFailure(502, f"what {' and '.join(part.givers)} gave does not fit together")
        (url,) = part.givers
        self._boot_hosts.refuse(url, part.asked, part.observed)
        log.error(
            "boot host gave a false file",
            boot_host=url,
            path=part.asked.path,
            observed=part.observed,
            expected=expected,
            remedy="check its store (provisioner image verify), and who stands between it and this cache",
        )
        return DownloadFailure(502, f"{url} gave sha256 {part.observed}", is_false=True)


def _result_of(failure: DownloadFailure | None) -> str:
    if failure is None:
        return "kept"
    return "false" if failure.is_false else {404: "not_found", 503: "full"}.get(failure.status, "failed")


class _WrittenNot(Exception):
    """The disk's fault, not the boot host's."""

    def __init__(self, reason: OSError) -> None:
        super().__init__(str(reason))
        self.reason = reason


class _Part:
    """What has come of a file. givers: the boot hosts that gave some of it, in order."""

    def __init__(
        self,
        asked: ImageFilePath,
        growing: Growing,
        file: BinaryIO,
        least_rate: int,
        reserve: Callable[[int], None],
        came: Callable[[int], None],
    ) -> None:
        self.asked, self._growing, self._file, self._least_rate = asked, growing, file, least_rate
        self._reserve, self._came = reserve, came
        self._digest = hashlib.sha256()
        self._size: int | None = None
        self.have = 0
        self.givers: list[str] = []

    @property
    def size_bytes(self) -> int:
        """What is reserved for it; 0 as long as nobody has said its size."""
        return self._size or 0

    @property
    def observed(self) -> str:
        """SHA-256 of what has come."""
        return self._digest.hexdigest()

    def continue_from(self, url: str) -> None:
        """Get the rest. Raises: what Answer raises, OSError if it was cut or is of another size, _WrittenNot."""
        largest = MANIFEST_BYTES if self.asked.name == "manifest" else _LARGEST
        limit = self._size if self._size is not None else largest
        with PartialBody(url + self.asked.path, self.have, size_bytes=limit, least_rate=self._least_rate) as answer:
            if answer.left_bytes is None:
                raise OSError("it does not say how much it sends")
            size = self.have + answer.left_bytes
            if size > largest:  # before room is made for it: that would cost what is kept
                raise OSError(f"it has {size} bytes, more than {largest}")
            if self._size is None:
                self._begin(size)
            elif size != self._size:
                raise OSError(f"it has {size} bytes, another boot host {self._size}")
            if url not in self.givers:
                self.givers.append(url)
            while self.have < size:
                piece = answer.read(_CHUNK)
                if not piece:
                    raise OSError(f"it was cut after {self.have} of {size} bytes")
                self._came(len(piece))
                self._digest.update(piece)
                self._write(piece)

    def _begin(self, size: int) -> None:
        try:
            self._reserve(size)
        except OSError as error:
            raise _WrittenNot(error) from error
        self._size = size
        self._growing.begin(self._file, size)

    def _write(self, piece: bytes) -> None:
        try:
            self._growing.write(piece)
        except OSError as error:
            raise _WrittenNot(error) from error
        self.have += len(piece)
