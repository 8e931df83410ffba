"""`provisioner cache`: nginx and the fetcher on one cache host, with nothing on its disk that may not be lost."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.boot.cache.answers import answer_server
from provisioner.boot.cache.boot_hosts import BootHosts
from provisioner.boot.cache.fetcher import Fetcher
from provisioner.boot.cache.health import CacheHealth
from provisioner.boot.cache.kept import KeptFiles
from provisioner.boot.cache.metrics import CacheMeters, cache_families
from provisioner.boot.cache.nginx import CacheSite, render_cache_nginx
from provisioner.boot.cache.paths import read_path
from provisioner.boot.cache.recheck import Rechecker
from provisioner.boot.cache.signatures import Signatures
from provisioner.boot.host.nginx import nginx_command
from provisioner.boot.host.nginx_upkeep import find_refusal, rotate_access_logs
from provisioner.boot.host.processes import Child, Enter, run_here
from provisioner.boot.metrics.log_tail import LogTail
from provisioner.boot.metrics.meters import log_families
from provisioner.boot.metrics.programs import health_families, nginx_families, program_families

log = structlog.get_logger(__name__)

STATUS_SECONDS: Final = 2.0
_LARGEST_MESSAGE: Final = 4096


class CacheService:
    """One cache host. kept_bytes: of whole files; least_rate: what a boot host must give, in bytes/s."""

    def __init__(self, site: CacheSite, *, kept_bytes: int, least_rate: int, enter: Enter = run_here) -> None:
        self._site, self._enter = site, enter
        self.kept = KeptFiles(site.kept, kept_bytes)
        self.boot_hosts = BootHosts(site.upstreams)
        self.fetcher = Fetcher(self.kept, self.boot_hosts, least_rate=least_rate, clock=time.time)
        self.rechecker = Rechecker(self.kept)
        self._signatures = Signatures(site.signatures, self.boot_hosts, time.time)
        self.meters = CacheMeters()
        self._threads: list[threading.Thread] = []
        self.health = CacheHealth(
            nginx_status=site.nginx_status_socket,
            fetcher=site.fetcher_socket,
            folder=site.run,
            threads=lambda: tuple(self._threads),
        )

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop`. Raises: NeedsHuman if a program, a right or a port is missing at the start."""
        self.prepare()
        site = self._site
        nginx = Child(
            "nginx",
            nginx_command(site.run, self._configuration),
            enter=self._enter,
            # One that was killed leaves it behind, and the next one could not have it.
            before=lambda: site.nginx_status_socket.unlink(missing_ok=True),
        )
        tail = LogTail(site.request_log, self.meters.count)
        self._tell(nginx, tail)
        halt = threading.Event()
        server = answer_server(self._site.fetcher_socket, self.fetcher.open, self._signatures.read)
        with self._listen() as asked, server:
            work: list[tuple[str, Callable[[threading.Event], None]]] = [
                ("nginx", nginx.run),
                ("asked", lambda halt: self._hear(asked, halt)),
                ("answers", lambda _: server.serve_forever()),
                ("recheck", self.rechecker.run),
                ("status", self._say),
                ("access-log", lambda halt: rotate_access_logs((site.access_log, site.request_log), nginx, halt)),
                ("requests", tail.run),
                *((f"probe-{probe.name}", probe.run) for probe in self.health.probes),
            ]
            for name, run in work:
                thread = threading.Thread(target=run, args=(halt,), name=f"cache-{name}", daemon=True)
                thread.start()
                self._threads.append(thread)
            log.info("cache was started", addresses=site.addresses, boot_hosts=list(site.upstreams))
            try:
                stop.wait()
            finally:
                halt.set()
                server.shutdown()
                for thread in self._threads:
                    thread.join(15)
        log.info("cache was stopped")

    def _tell(self, nginx: Child, tail: LogTail) -> None:
        """Have the meters tell what stands, whenever they are asked."""
        self.meters.tell(
            [
                lambda: cache_families(self.kept, self.fetcher, self.rechecker.thrown_away, self._site.kept),
                lambda: nginx_families(self.health.nginx.connections, self._site.slots),
                lambda: program_families([nginx]),
                lambda: health_families(self.health.liveness, self.health.readiness),
                lambda: log_families(tail),
            ]
        )

    def prepare(self) -> None:
        """Lay out the state folder and nginx's configuration, which nginx checks."""
        site = self._site
        for folder in (site.state, site.run, site.signatures, site.access_log.parent):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)  # nginx's workers are somebody else
        site.ready.unlink(missing_ok=True)
        self.kept.prepare()
        self._write_status()
        self._configuration.write_text(render_cache_nginx(site))
        refusal = find_refusal(self._enter(nginx_command(site.run, self._configuration, test=True)))
        if refusal is not None:
            raise NeedsHuman(
                f"nginx refuses {self._configuration}: {refusal}",
                hint="is nginx installed, and is the address this host's?",
            )

    @property
    def _configuration(self) -> Path:
        return self._site.run / "nginx.conf"

    def _listen(self) -> socket.socket:
        path = self._site.asked_socket
        path.unlink(missing_ok=True)
        asked = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        asked.bind(str(path))
        path.chmod(0o666)  # nginx's workers are somebody else; what comes is a path, and read as one
        asked.settimeout(0.5)
        return asked

    def _hear(self, asked: socket.socket, halt: threading.Event) -> None:
        while not halt.is_set():
            with suppress(TimeoutError):
                message = asked.recv(_LARGEST_MESSAGE)
                said = read_path(message.decode("latin-1").rpartition(" ")[2])
                if said is not None:
                    self.kept.touch(said, time.time())

    def _say(self, halt: threading.Event) -> None:
        while not halt.wait(STATUS_SECONDS):
            self._write_status()
            with suppress(OSError):
                if not self.health.is_ready:
                    self._site.ready.unlink(missing_ok=True)
                elif not self._site.ready.exists():
                    self._site.ready.write_text("ready\n")
                    self._site.ready.chmod(0o644)

    def _write_status(self) -> None:
        files = self.kept.all()
        status = {
            "bootHosts": list(self._site.upstreams),
            "keptFiles": len(files),
            "keptBytes": sum(file.size_bytes for file in files),
            "mostBytes": self.kept.most_bytes,
            "underWay": self.fetcher.under_way,
            "thrownAway": self.rechecker.thrown_away,
            "refusals": [
                {"bootHost": each.boot_host, "path": each.path, "observed": each.observed, "time": round(each.time)}
                for each in self.boot_hosts.refusals
            ],
        }
        half = self._site.status.with_suffix(".new")
        try:
            half.write_text(json.dumps(status) + "\n")
            half.chmod(0o644)
            half.replace(self._site.status)
        except OSError as error:
            log.warning("status of the cache was not written", error=str(error))
