"""Between the caches and the DHCP responder: what it must know flows in, what it saw of boots flows out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import structlog

from provisioner.api import Rack, Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.api.machinery.meta import Resource
from provisioner.api.servers.boot_stage import BootStage
from provisioner.api.servers.discovery import NAME_PREFIX
from provisioner.boot.dhcp import DhcpConfig, DhcpServer, Observation
from provisioner.boot.host.dhcp_trouble import DhcpTrouble
from provisioner.boot.observe.discover import Discoverer
from provisioner.boot.observe.progress import ProgressReport
from provisioner.boot.observe.recorder import ProgressRecorder
from provisioner.cluster.events import Events
from provisioner.cluster.source import Object, Source, Watcher, when_changed

log = structlog.get_logger(__name__)

_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 30.0

Change = tuple[type[Resource], str]


class DhcpFeed:
    """Owns the DhcpServer: starts it, keeps its inventory right, and tells the stages and the trouble that it sees."""

    def __init__(
        self,
        config: DhcpConfig,
        recorder: ProgressRecorder,
        discoverer: Discoverer,
        servers: Source,
        racks: Source,
        events: Events,
    ) -> None:
        self._recorder = recorder
        self._discoverer = discoverer
        self._trouble = DhcpTrouble(events, lambda kind, name: (racks if kind == "Rack" else servers).get(name))
        self._servers, self._racks = servers, racks
        self.dhcp = DhcpServer(config, self._saw)
        self._changed = threading.Condition()
        self._changes: set[Change] = set()

    def start(self) -> None:
        """Open the sockets; nothing is answered before the inventory is known. Raises: NeedsHuman."""
        self._servers.subscribe(self._marks(Server))
        self._racks.subscribe(self._marks(Rack))
        self.dhcp.start()

    def stop(self) -> None:
        """Close the sockets."""
        self.dhcp.stop()

    def run(self, stop: threading.Event) -> None:
        """Pass changes on until `stop`. Raises nothing: what fails is logged and tried again."""
        while not (self._servers.has_synced and self._racks.has_synced):
            if stop.wait(0.05):
                return
        whole, pause = False, _FIRST_PAUSE_SECONDS
        while not stop.is_set():
            try:
                if not whole:
                    self._pass_on_all()
                    whole = True
                self._pass_on_changes()
                self._trouble.look(self.dhcp)
                pause = _FIRST_PAUSE_SECONDS
            except Exception:
                # Everything again: which of the changes were passed on is not known.
                log.exception("changes were not passed on to DHCP", retry_after_seconds=pause)
                whole = False
                stop.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _pass_on_all(self) -> None:
        with self._changed:
            self._changes.clear()  # what was marked so far is in the caches, and so in the whole
        self.dhcp.replace(_decoded(Rack, self._racks.items()), _decoded(Server, self._servers.items()))

    def _pass_on_changes(self) -> None:
        with self._changed:
            if not self._changes:
                self._changed.wait(timeout=1.0)
            changes, self._changes = self._changes, set()
        for kind, name in changes:
            try:
                self._pass_on(kind, name)
            except Exception:
                log.exception("change was not passed on to DHCP", kind=kind.__name__, name=name)

    def _pass_on(self, kind: type[Resource], name: str) -> None:
        put: Callable[[Any], None]
        if kind is Rack:
            source, put, remove = self._racks, self.dhcp.put_rack, self.dhcp.remove_rack
        else:
            source, put, remove = self._servers, self.dhcp.put_server, self.dhcp.remove_server
        body = source.get(name)
        if body is None:
            remove(name)
        for decoded in _decoded(kind, [body] if body is not None else []):
            put(decoded)

    def _marks(self, kind: type[Resource]) -> Watcher:
        def mark(name: str) -> None:
            with self._changed:
                self._changes.add((kind, name))
                self._changed.notify_all()

        return when_changed(_inputs, mark)

    def _saw(self, seen: Observation) -> None:
        if seen.kind in ("Firmware", "IPXE"):
            if seen.server is not None:
                stage: BootStage = "IPXE" if seen.kind == "IPXE" else "Firmware"
                self._recorder.observe(ProgressReport(mac=seen.mac_address, stage=stage))
            if seen.server is None or seen.server.startswith(NAME_PREFIX):
                self._discoverer.heard(seen.mac_address)
        self._trouble.saw(seen)


def _inputs(body: Object | None) -> tuple[Any, ...] | None:
    """What of an object DHCP depends on: not the progress of a boot."""
    if body is None:
        return None
    status = body.get("status") or {}
    return (body.get("spec"), status.get("address"), status.get("subnetName"))


def _decoded(kind: type[Any], bodies: list[dict[str, Any]]) -> list[Any]:
    decoded = []
    for body in bodies:
        try:
            decoded.append(decode(kind, body))
        except ProvisionerError as error:
            log.warning(
                "object is not served by DHCP", kind=kind.__name__, name=body["metadata"]["name"], error=str(error)
            )
    return decoded
