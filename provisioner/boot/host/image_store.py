"""Whether the files of each Image are in this boot host's store: the condition Available of the Image.

What is looked at is presence and size; the content is verified where it matters, by stage-1 in the machine. Of the
kernel it is read once: what an Image says that TPMs show of it (`measurements`) is in no signed text, so that somebody
who may create Images, and cannot sign them, could have machines believed that booted another kernel. With
several boot hosts the condition means that at least one of them has the files: each host that has them stands in
`status.stores` and repeats itself every few minutes, and whoever looks leaves out hosts that no longer do, such as one
that was replaced. All hosts write one field set as one manager, under the version of the Image that they read.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import structlog

from provisioner.api import Image
from provisioner.api.images.image import StoreReport
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.machinery.errors import Conflict, NotFound, ProvisionerError, Refused
from provisioner.api.machinery.meta import Condition, parse_time, rfc3339
from provisioner.api.servers.rack import CacheReport
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.source import Source

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-boot"
LOOK_SECONDS: Final = 15.0
REPEAT_SECONDS: Final = 300.0
FORGET_SECONDS: Final = 900.0


@dataclass(frozen=True)
class NeededFile:
    """A file that an image needs. `size_bytes` None: any size but zero."""

    path: str
    size_bytes: int | None


@dataclass(frozen=True)
class Availability:
    """The part of an Image's status that boot hosts write. `news`: worth an Event, not just a repetition."""

    stores: tuple[StoreReport, ...]
    condition: Condition
    news: bool
    lacking_host: str | None = None

    @property
    def status(self) -> dict[str, Any]:
        """For a server-side apply."""
        own = {"conditions": [to_json(self.condition)], "stores": [to_json(report) for report in self.stores]}
        return own | ({"lackingHost": self.lacking_host} if self.lacking_host is not None else {})


def files_of(image: Image) -> Iterator[NeededFile]:
    """What of an image must lie in the store for servers to boot it, by paths below it: no documents."""
    for artifact in image.spec.served:
        yield NeededFile(artifact.path, artifact.size_bytes)
    yield NeededFile(f"{image.spec.manifest.path}.sig", None)


def judge_image(
    image: Image,
    sizes: Mapping[str, int | None],
    host: str,
    now: datetime,
    waits_for: str | None = None,
    mismeasured: str | None = None,
) -> Availability | None:
    """What the Image's status shall say after `host` looked, or None if what is written there already stands.

    `sizes`: size in bytes of each file in this host's store, None where there is none. `waits_for`: what this host, if
    it pulls images itself, waits for with this one. `mismeasured`: what kernel_problem found, if all files are there.
    """
    problem = next((words for file in files_of(image) if (words := file_problem(file, sizes.get(file.path)))), None)
    problem = problem or mismeasured
    before, lacking = find_condition(image.status.conditions, "Available"), image.status.lacking_host
    # Measurements may be added to an Image: what hosts said before that says nothing of them.
    is_current = before is not None and before.observed_generation == image.metadata.generation
    reports = image.status.stores if is_current else ()
    stores = [report for report in reports if report.host != host and age_of(report, now) < FORGET_SECONDS]
    if problem is None:
        stores.append(_own_report(image, host, now))
    stores.sort(key=lambda report: report.host)
    if stores:
        lacking = None
        names = ", ".join(f"'{report.host}'" for report in stores)
        said = ("True", "Stored", f"all files are in the image store of boot host{'s' * (len(stores) > 1)} {names}")
    elif before is not None and before.status == "False" and lacking not in (None, host):
        said = (before.status, before.reason, before.message)  # another host says already that it lacks them, too
    else:
        lacking = host
        said = (
            "False",
            "Incomplete",
            f"{problem} in the image store of boot host '{host}'{f': {waits_for}' if waits_for else ''}",
        )
    status, reason, message = said
    stands = is_current and before is not None and (before.status, before.message) == (status, message)
    if stands and (tuple(stores), lacking) == (image.status.stores, image.status.lacking_host):
        return None
    wanted = condition_of(image, "Available", status == "True", reason, message, now)
    news = before is None or before.status != status or (status == "False" and before.message != message)
    return Availability(tuple(stores), wanted, news, lacking)


def _own_report(image: Image, host: str, now: datetime) -> StoreReport:
    before = next((report for report in image.status.stores if report.host == host), None)
    if before is not None and age_of(before, now) < REPEAT_SECONDS:
        return before
    return StoreReport(host=host, time=rfc3339(now))


def age_of(report: StoreReport | CacheReport, now: datetime) -> float:
    """Seconds since a host said so; what comes from the future by a wrong clock grows old as well."""
    return abs((now - parse_time(report.time)).total_seconds())


def file_problem(file: NeededFile, size: int | None) -> str | None:
    """What is wrong with a file of that size in a store; None if nothing is."""
    if size is None:
        return f"{file.path} is missing"
    if size == 0 or file.size_bytes not in (None, size):
        return f"{file.path} has {size} bytes instead of {file.size_bytes or 'some'}"
    return None


def kernel_problem(image: Image, kernel: bytes) -> str | None:
    """How what the Image says that TPMs show of its kernel differs from `kernel`, the file; None if it does not."""
    said, path = image.spec.measurements, image.spec.kernel.path
    if said is None:
        return None
    if f"sha256:{hashlib.sha256(kernel).hexdigest()}" != image.spec.kernel.sha256:
        return f"{path} is another file than the Image names"
    try:
        measured = authenticode_sha256(kernel)
    except Refused as error:
        return f"{path}, of which the Image says measurements, cannot be measured: {error}"
    if measured == said.kernel_authenticode_sha256:
        return None
    return (
        f"the Image says that TPMs show {said.kernel_authenticode_sha256} of its kernel, expected {measured} of {path}"
    )


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
        waits_for: Callable[[str], str | None] = lambda name: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster = cluster
        self._images = images
        self._store = store
        self._events = events
        self._host = host
        self._waits_for = waits_for
        self._now = now
        self._wake = threading.Event()
        self._complete: dict[str, bool] = {}
        self._measured: dict[str, tuple[str, str, str]] = {}
        """By Image, of which kernel (path and digest) it was found to say what TPMs show."""

    def attach(self) -> None:
        """Follow the Images."""
        self._images.subscribe(self._changed)

    def _changed(self, name: str, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        if new is None:
            self._complete.pop(name, None)
            self._measured.pop(name, None)
        elif old is None:
            self.wake()

    def count(self) -> tuple[int, int]:
        """How many Images this host has every file of, and of how many it lacks some, as it looked last."""
        found = list(self._complete.values())
        return sum(found), len(found) - sum(found)

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
        is_whole = all(file_problem(file, sizes.get(file.path)) is None for file in files_of(image))
        mismeasured = self._mismeasured(image) if is_whole else None
        self._complete[image.name] = is_whole and mismeasured is None
        availability = judge_image(image, sizes, self._host, self._now(), self._waits_for(image.name), mismeasured)
        if availability is None:
            return
        condition = availability.condition
        try:
            self._cluster.apply_status(
                Image,
                image.name,
                availability.status,
                manager=MANAGER,
                resource_version=image.metadata.resource_version,
            )
        except NotFound:
            return
        if not availability.news:
            return
        reason = "ImageAvailable" if condition.status == "True" else "ImageIncomplete"
        self._events.record(body, "Normal" if condition.status == "True" else "Warning", reason, condition.message)

    def _mismeasured(self, image: Image) -> str | None:
        """What kernel_problem says of the file; once it says nothing, it is not read again for what the Image says."""
        said, kernel = image.spec.measurements, image.spec.kernel
        if said is None:
            return None
        found = (kernel.path, kernel.sha256, said.kernel_authenticode_sha256)
        if self._measured.get(image.name) == found:
            return None
        try:
            problem = kernel_problem(image, (self._store / kernel.path).read_bytes())
        except OSError as error:
            return f"{kernel.path} cannot be read ({error.strerror})"
        if problem is None:
            self._measured[image.name] = found
        return problem

    def _size(self, path: str) -> int | None:
        try:
            found = (self._store / path).stat()
        except (OSError, ValueError):
            return None
        return found.st_size
