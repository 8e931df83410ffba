"""Whether the files of each Image are in this boot host's store: the condition Available of the Image.

What is looked at is presence and size; the content is verified where it matters, by stage-1 in the machine. With
several boot hosts the condition means that at least one of them has the files: a host says True of what it has, and
says False only where no other host has said True.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from provisioner.api import Image
from provisioner.api.codec import decode, to_json
from provisioner.api.conditions import find_condition, settle_condition
from provisioner.api.errors import Conflict, NotFound, ProvisionerError
from provisioner.api.meta import Condition, rfc3339
from provisioner.boot.recorder import Events
from provisioner.boot.server_index import Source
from provisioner.cluster.client import Cluster

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-boot"
LOOK_SECONDS: Final = 15.0


@dataclass(frozen=True)
class StoredFile:
    """A file that an image needs. `size_bytes` None: any size but zero."""

    path: str
    size_bytes: int | None


def files_of(image: Image) -> Iterator[StoredFile]:
    """What of an image must lie in the store, by paths below it."""
    spec = image.spec
    for artifact in (spec.manifest, spec.kernel, spec.stage1, spec.root):
        yield StoredFile(artifact.path, artifact.size_bytes)
    yield StoredFile(f"{spec.manifest.path}.sig", None)


def judge_image(image: Image, sizes: Mapping[str, int | None], host: str, now: datetime) -> Condition | None:
    """The condition Available as `host` sees it, or None if what is written there already stands.

    `sizes`: size in bytes of each file in this host's store, None where there is none.
    """
    problem = next((words for file in files_of(image) if (words := _problem(file, sizes.get(file.path)))), None)
    before = find_condition(image.status.conditions, "Available")
    by_us = before is not None and f"'{host}'" in before.message
    if problem is None:
        if before is not None and before.status == "True":
            return None
        said = ("True", "Stored", f"all files are in the image store of boot host '{host}'")
    else:
        if before is not None and not by_us:
            return None  # another host has the files, or says already that it lacks them, too
        said = ("False", "Incomplete", f"{problem} in the image store of boot host '{host}'")
    status, reason, message = said
    if before is not None and (before.status, before.message) == (status, message):
        return None
    wanted = Condition(
        type="Available",
        status="True" if status == "True" else "False",
        reason=reason,
        message=message,
        last_transition_time=rfc3339(now),
        observed_generation=image.metadata.generation,
    )
    return settle_condition(image.status.conditions, wanted)


def _problem(file: StoredFile, size: int | None) -> str | None:
    if size is None:
        return f"{file.path} is missing"
    if size == 0 or file.size_bytes not in (None, size):
        return f"{file.path} has {size} bytes instead of {file.size_bytes or 'some'}"
    return None


class StoreWatch:
    """Looks at the store for every Image, now and then and when an Image appears."""

    def __init__(
        self,
        cluster: Cluster,
        images: Source,
        store: Path,
        events: Events,
        *,
        host: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._images = images
        self._store = store
        self._events = events
        self._host = host
        self._now = now
        self._wake = threading.Event()

    def attach(self) -> None:
        """Follow the Images."""
        self._images.subscribe(lambda name, old, new: self.wake() if old is None else None)

    def run(self, stop: threading.Event) -> None:
        """Look until `stop`."""
        while not stop.is_set():
            self._wake.clear()
            for body in self._images.items():
                try:
                    self.look(body)
                except Conflict:
                    self._wake.set()  # somebody else wrote: look once more
                except ProvisionerError as error:
                    log.warning("image was not looked at", image=body["metadata"]["name"], error=str(error))
            stop.wait(0.2)
            self._wake.wait(LOOK_SECONDS)

    def wake(self) -> None:
        """Look now; lets `run` notice that it should stop, too."""
        self._wake.set()

    def look(self, body: Mapping[str, Any]) -> None:
        """Bring one Image's condition up to date. Raises: Conflict and the other errors of the cluster."""
        image = decode(Image, body)
        sizes = {file.path: self._size(file.path) for file in files_of(image)}
        condition = judge_image(image, sizes, self._host, self._now())
        if condition is None:
            return
        try:
            self._cluster.apply_status(
                Image,
                image.name,
                {"conditions": [to_json(condition)]},
                manager=MANAGER,
                resource_version=image.metadata.resource_version,
            )
        except NotFound:
            return
        reason = "ImageAvailable" if condition.status == "True" else "ImageIncomplete"
        self._events.record(body, "Normal" if condition.status == "True" else "Warning", reason, condition.message)

    def _size(self, path: str) -> int | None:
        try:
            found = (self._store / path).stat()
        except (OSError, ValueError):
            return None
        return found.st_size
