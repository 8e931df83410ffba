"""Keeps one iPXE script per server on disk, written when an input changes, so that nginx serves files.

The folder can be lost at any time: it is written anew from the caches. Until the caches are filled nothing is deleted.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.boot.metrics.scripts import RenderResult, ScriptMeter
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.boot.rack_cache import verdict_on_cache
from provisioner.boot.script.choose import KeepWaiting, choose_boot_target
from provisioner.boot.script.kernel_arguments import BootUrls
from provisioner.boot.script.render import render_first_script, render_script
from provisioner.cluster.source import Object, Source, Watcher, look_up, when_changed
from provisioner.rules.assigned_image import current_image, images_of_pool
from provisioner.rules.bootability import availability_of
from provisioner.rules.dpus import awaiting, hosts_that_wait_otherwise
from provisioner.rules.identity import boot_mac
from provisioner.rules.pool_of_server import booting_pool, refers_to

log = structlog.get_logger(__name__)

STARTING: Final = KeepWaiting(
    reason="Starting",
    message="the boot service starts, or cannot reach the API server",
    remedy="if this lasts more than a minute, look at the log of the boot service",
    retry_seconds=5,
)
RESYNC_SECONDS: Final = 300.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0


class ScriptRenderer:
    """Writes `<folder>/ipxe/<mac with hyphens>.ipxe`, `<folder>/boot.ipxe` and `<folder>/starting.ipxe`."""

    def __init__(
        self,
        index: ServerIndex,
        *,
        pools: Source,
        images: Source,
        racks: Source,
        urls: BootUrls,
        folder: Path,
        meter: ScriptMeter | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index = index
        self._pools, self._images, self._racks = pools, images, racks
        self._urls = urls
        self.folder = folder
        self._meter = meter or ScriptMeter(CollectorRegistry())
        self._monotonic = monotonic
        self._behind_since: float | None = None
        self._written: dict[str, str] = {}
        self._awaited = index.servers.index(awaiting)
        self._changed: set[str] = set()
        self._rendering: set[str] = set()
        self._wake = threading.Condition()
        self._rebuilt = threading.Event()

    @property
    def ready(self) -> bool:
        """Whether every server's script has been written since the start."""
        return self._rebuilt.is_set()

    @property
    def scripts(self) -> int:
        """How many there are."""
        return len(self._written)

    def pending(self) -> tuple[int, float]:
        """How many scripts are to be written, and for how many seconds the first of these changes has waited."""
        with self._wake:
            since = self._behind_since
            return len(self._changed | self._rendering), max(
                0.0, self._monotonic() - since
            ) if since is not None else 0.0

    def attach(self) -> None:
        """Follow the caches; the ServerIndex must have been attached before."""
        self._index.servers.subscribe(self._server_changed)
        servers = self._index.servers.index(refers_to)
        pools_by_image = self._pools.index(images_of_pool)

        def boots_image(image: str) -> list[Object]:
            pools = [pool["metadata"]["name"] for pool in pools_by_image.get(image)]
            return [*servers.get(("Image", image)), *(s for pool in pools for s in servers.get(("NodePool", pool)))]

        self._pools.subscribe(self._dependants(lambda name: servers.get(("NodePool", name))))
        self._racks.subscribe(self._dependants(lambda name: servers.get(("Rack", name))))
        self._images.subscribe(self._dependants(boots_image))

    def write_fixed(self) -> None:
        """Write the scripts that depend on no server; nginx needs them before anything else is known."""
        (self.folder / "ipxe").mkdir(parents=True, exist_ok=True)
        _write_atomically(self.folder / "boot.ipxe", render_first_script(self._urls))
        _write_atomically(self.folder / "starting.ipxe", render_script(STARTING))

    def run(self, stop: threading.Event) -> None:
        """Keep the scripts right until `stop`. Raises nothing: what fails is logged and tried again."""
        pause = _FIRST_PAUSE_SECONDS
        while not stop.is_set():
            with self._wake:
                if self._rebuilt.is_set() and not self._changed:
                    self._wake.wait(timeout=RESYNC_SECONDS)
                macs, self._changed = self._changed, set()
                self._rendering = macs
            if stop.is_set():
                return
            if not self._synced():
                self._put_back(macs)
                stop.wait(0.1)
                continue
            try:
                # Nothing changed for a while, or nothing was written yet: everything, and the disk is looked at, too.
                self.render_all() if not macs or not self._rebuilt.is_set() else self.render(macs)
                pause = _FIRST_PAUSE_SECONDS
                self._caught_up()
            except Exception as error:
                # Whatever it was: a service that serves yesterday's scripts and does not know it is the worst of all.
                expected = isinstance(error, OSError)
                log.warning(
                    "scripts were not written", folder=str(self.folder), error=repr(error), exc_info=not expected
                )
                self._meter.failed()
                self._put_back(macs)
                stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _put_back(self, macs: set[str]) -> None:
        with self._wake:
            self._changed |= macs
            self._rendering = set()
            self._behind_since = self._monotonic() if self._behind_since is None else self._behind_since

    def _caught_up(self) -> None:
        with self._wake:
            self._rendering = set()
            self._behind_since = self._monotonic() if self._changed else None

    def wake(self) -> None:
        """Let `run` notice that it should stop."""
        with self._wake:
            self._wake.notify_all()

    def render_all(self) -> int:
        """Write every server's script that differs from the disk, remove those of no server. Returns: files touched."""
        self.write_fixed()
        on_disk = {path.stem.replace("-", ":"): path for path in (self.folder / "ipxe").glob("*.ipxe")}
        self._written = {}
        for stale, path in on_disk.items():
            with contextlib.suppress(OSError, UnicodeDecodeError):
                self._written[stale] = path.read_text()
        booting = {mac for server in self._index.servers.items() if (mac := boot_mac(server)) is not None}
        touched = self.render(booting | set(on_disk))
        log.info("scripts were written anew", servers=len(booting), files=touched)
        self._rebuilt.set()
        return touched

    def render(self, macs: set[str]) -> int:
        """Bring the scripts of `macs` up to date. Returns: how many files were written or removed."""
        touched = 0
        for mac in macs:
            began = self._monotonic()
            result = self._render_one(mac)
            self._meter.rendered(result, self._monotonic() - began)
            touched += result in ("written", "removed", "unreadable")
        return touched

    def _render_one(self, mac: str) -> RenderResult:
        path = self.folder / "ipxe" / f"{mac.replace(':', '-')}.ipxe"
        found = self._index.booting_from(mac)
        if found is None:
            self._written.pop(mac, None)
            existed = path.exists()
            path.unlink(missing_ok=True)
            return "removed" if existed else "unchanged"
        text, is_readable = self._script(found)
        if self._written.get(mac) == text:
            return "unchanged"
        _write_atomically(path, text)
        self._written[mac] = text
        return "written" if is_readable else "unreadable"

    def _script(self, found: dict[str, Any]) -> tuple[str, bool]:
        """The script, and whether all objects that it is made of could be read."""
        name = found["metadata"]["name"]
        try:
            server = decode(Server, found)
            rack = look_up(Rack, self._racks, server.spec.rack_ref)
            pool = look_up(NodePool, self._pools, booting_pool(server).name)
            image = look_up(Image, self._images, current_image(server, pool).name)
            awaited = [str(each["metadata"]["name"]) for each in self._awaited.get(server.name)]
            return render_script(choose_boot_target(server, pool, image, rack, self._urls, awaited)), True
        except ProvisionerError as error:  # an object of a newer version, say: the machine waits, the others go on
            words = str(error)
            log.warning("server's script cannot be rendered", server=name, error=words)
        except Exception:  # a fault of ours that one server's data meets must not cost the others their scripts
            words = "the boot service has a fault"
            log.exception("server's script cannot be rendered", server=name)
        wait = KeepWaiting(server=name, reason="Unreadable", message=words, remedy="look at the boot service's log")
        return render_script(wait), False

    def _synced(self) -> bool:
        return all(source.has_synced for source in (self._index.servers, self._pools, self._images, self._racks))

    def _server_changed(self, _: str, old: Object | None, new: Object | None) -> None:
        self._mark(self._index.servers.get(host) for host in hosts_that_wait_otherwise(old, new))
        if old is None or new is None or _inputs(old) != _inputs(new):
            self._mark((old, new))

    def _dependants(self, dependants_of: Callable[[str], Iterable[Object]]) -> Watcher:
        return when_changed(_weight, lambda name: self._mark(dependants_of(name)))

    def _mark(self, servers: Iterable[Object | None]) -> None:
        macs = {mac for server in servers if server is not None and (mac := boot_mac(server)) is not None}
        if macs:
            with self._wake:
                self._changed |= macs
                self._behind_since = self._monotonic() if self._behind_since is None else self._behind_since
                self._wake.notify_all()


def _inputs(server: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a Server its script depends on: most changes of a booting server's status are none of it."""
    status = server.get("status") or {}
    order = status.get("order") or {}
    fields = ("address", "subnetName", "assignedImageRef", "assignedNodePoolRef", "nodePoolRef", "readyTime")
    ordered = (order.get(field) for field in ("imageRef", "nodePoolRef", "attempt"))
    return (server.get("spec"), *ordered, *(status.get(field) for field in fields))


def _weight(body: Object | None) -> tuple[Any, ...] | None:
    """What of a pool, rack or image a script depends on: not the counts in its status."""
    if body is None:
        return None
    return (body.get("spec"), images_of_pool(body), availability_of(body), verdict_on_cache(body))


def _write_atomically(path: Path, text: str) -> None:
    """Readers see the old file or the new one. Not synced to the disk: it can be written again from the cluster."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.chmod(0o644)
    temporary.rename(path)
