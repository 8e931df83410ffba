"""What nginx was asked and answered, counted from a log of its own, of which every word is nginx's or ours.

    script 200 512 0.000 -
    part 206 1048576 0.031 parts/sha256-9f3c…

The last word is there for parts of images alone: their name is a digest, and which one is a kernel the Images say.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram

from provisioner.cluster.series import PREFIX, born
from provisioner.cluster.source import Source

CLASSES: Final = (
    "first_script", "script", "waiting_script", "starting_script", "firmware", "manifest", "kernel", "stage1", "layer",
    "part", "progress", "ipxe", "join", "health", "other",
)  # fmt: skip
CODES: Final = ("2xx", "3xx", "4xx", "429", "499", "5xx", "503")
"""429: too often; 499: the client left; 503: no image slot is free, or the service behind does not answer."""
SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


def code_of(status: str) -> str | None:
    """One of CODES; None for what is no status."""
    if status in CODES:
        return status
    if len(status) != 3 or not (status.isascii() and status.isdigit()):
        return None
    return {"2": "2xx", "3": "3xx", "4": "4xx", "5": "5xx"}.get(status[0])


class LoggedRequest(NamedTuple):
    """One line: what was asked for, in nginx's words; one of CODES; bytes of the answer; seconds; the part's name."""

    word: str
    code: str
    sent_bytes: int
    seconds: float
    part: str


def read_line(line: bytes) -> LoggedRequest | None:
    """None for what is none of nginx's."""
    try:
        word, status, size, seconds, part = line.decode("ascii").split(" ")
        code, sent, took = code_of(status), int(size), float(seconds)
    except ValueError:
        return None
    if code is None or sent < 0 or not 0 <= took < float("inf"):
        return None
    return LoggedRequest(word, code, sent, took, part)


class PartClasses:
    """What each part of the known Images is, by its path below the image store: kernel, stage1, layer."""

    def __init__(self, images: Source) -> None:
        self._lock = threading.Lock()
        self._by_image: dict[str, dict[str, str]] = {}
        self._classes: dict[str, str] = {}
        images.subscribe(self._changed)

    def get(self, path: str) -> str:
        """`part` for one that no Image names."""
        return self._classes.get(path, "part")

    def _changed(self, name: str, _old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        with self._lock:
            self._by_image.pop(name, None)
            if new is not None:
                self._by_image[name] = _parts_of(new.get("spec") or {})
            self._classes = {path: word for parts in self._by_image.values() for path, word in parts.items()}


def _parts_of(spec: Mapping[str, Any]) -> dict[str, str]:
    named = [("kernel", spec.get("kernel")), ("stage1", spec.get("stage1")), ("layer", spec.get("root"))]
    named += [("layer", layer) for layer in spec.get("layers") or ()]
    return {str(artifact["path"]): word for word, artifact in named if artifact and "path" in artifact}


class RequestsMeter:
    """Counts lines of that log. Not for several threads. `class_of_part`: as PartClasses.get."""

    def __init__(self, registry: CollectorRegistry, class_of_part: Callable[[str], str] = lambda path: "part") -> None:
        self.class_of_part = class_of_part
        self._requests = Counter(
            f"{PREFIX}_http_requests", "Requests, by what was asked for.", ("class", "code"), registry=registry
        )
        self._bytes = Counter(f"{PREFIX}_http_sent_bytes", "Bytes of answers.", ("class",), registry=registry)
        self._seconds = Histogram(
            f"{PREFIX}_http_request_seconds",
            "From the first byte of a request to the last one of its answer.",
            ("class",),
            buckets=SECONDS,
            registry=registry,
        )
        born(self._requests, CLASSES, CODES)
        born(self._bytes, CLASSES)
        born(self._seconds, CLASSES)
        self._requests_of = {(name, code): self._requests.labels(name, code) for name in CLASSES for code in CODES}
        self._bytes_of = {name: self._bytes.labels(name) for name in CLASSES}
        self._seconds_of = {name: self._seconds.labels(name) for name in CLASSES}

    def count(self, line: bytes) -> bool:
        """Take one line. Returns: whether it could be read."""
        request = read_line(line)
        if request is None:
            return False
        name = self.class_of_part(request.part) if request.word == "part" else request.word
        if name not in self._bytes_of:
            return False
        self._requests_of[name, request.code].inc()
        self._bytes_of[name].inc(request.sent_bytes)
        self._seconds_of[name].observe(request.seconds)
        return True
