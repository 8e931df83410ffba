"""The boot service: everything a booting machine talks to, on one host, with nothing on its disk that matters.

DHCP            worker processes (provisioner.boot.dhcp)
TFTP            dnsmasq           first-stage files
HTTP, TLS       nginx             scripts, images, first-stage files; passes the rest on to
a unix socket   waitress + Flask  progress, unknown machines, and the blueprints that are given (the join)
threads         renderer, recorder, discoverer, image store and what fills it, looks at the racks' caches, probes
"""

from __future__ import annotations

import grp
import os
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import structlog
import waitress.server
from flask import Blueprint, Flask

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.boot.dhcp import DhcpConfig
from provisioner.boot.host.cache_watch import CacheWatch
from provisioner.boot.host.dhcp_feed import DhcpFeed
from provisioner.boot.host.health import BootHostHealth
from provisioner.boot.host.image_slots import link_megabits, slots_of_link
from provisioner.boot.host.image_store import StoreWatch
from provisioner.boot.host.metrics import told_of_boot_host
from provisioner.boot.host.nginx import NginxSite, nginx_command, render_nginx
from provisioner.boot.host.nginx_upkeep import (
    find_refusal,
    follow_certificate,
    most_open_files,
    rotate_access_logs,
    stamp_of,
)
from provisioner.boot.host.peer import RealPeer
from provisioner.boot.host.processes import Child, Enter, run_here
from provisioner.boot.host.web import boot_blueprint
from provisioner.boot.metrics.inventory import InventoryMeter
from provisioner.boot.metrics.log_tail import LogTail
from provisioner.boot.metrics.meters import BootMeters
from provisioner.boot.metrics.requests import PartClasses
from provisioner.boot.observe.discover import Discoverer
from provisioner.boot.observe.recorder import ProgressRecorder
from provisioner.boot.observe.server_index import ServerIndex
from provisioner.boot.observe.trace.tracer import MachineTracer
from provisioner.boot.script.kernel_arguments import BootUrls
from provisioner.boot.script.render import render_first_script
from provisioner.boot.script.renderer import ScriptRenderer
from provisioner.boot.tftp.dnsmasq import PROBE_FILE, dnsmasq_command, run_as
from provisioner.boot.tftp.firmware import SERVED_FILES, collect_firmware
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.informer import Informer
from provisioner.cluster.lingering_channel import LingeringChannel
from provisioner.cluster.resources import of
from provisioner.cluster.trim import without_managed_fields

log = structlog.get_logger(__name__)

STOP_SECONDS: Final = 15.0
MAX_BODY_BYTES: Final = 256 * 1024
RECORDERS: Final = 4
DEBIAN_IPXE: Final = (Path("/usr/lib/ipxe"),)


@dataclass(frozen=True, kw_only=True)
class BootSettings:
    """How a boot host serves.

    address: its IPv4 address on the boot network. state: a folder that may be empty and may be lost. images: the image
    store. certificate, key: PEM files for the join. firmware: folders with iPXE's files, in order of preference.
    user: whom nginx's workers and dnsmasq run as; used only where the service runs as root. dhcp: None where another
    DHCP server answers. trusted_proxies: networks whose X-Forwarded-For nginx believes. image_slots: files of images
    sent at once; None: by the speed of the link. caches: networks of racks' caches, which need no slot. ipxe_https:
    whether iPXE fetches kernel and stage-1 by TLS.
    """

    address: str
    state: Path
    images: Path
    certificate: Path | None = None
    key: Path | None = None
    firmware: tuple[Path, ...] = DEBIAN_IPXE
    user: str = "www-data"
    dhcp: DhcpConfig | None = None
    tftp: bool = True
    http_port: int = 80
    join_port: int = 8443
    dpu_join_port: int | None = None
    trusted_proxies: tuple[str, ...] = ()
    image_slots: int | None = None
    caches: tuple[str, ...] = ()
    ipxe_https: bool = False
    host: str = field(default_factory=socket.gethostname)
    threads: int = 8

    @property
    def urls(self) -> BootUrls:
        """Where booting servers find it."""
        return BootUrls.at(self.address, self.http_port, self.join_port, ipxe_https=self.ipxe_https)


@dataclass(frozen=True)
class BootCaches:
    """What a boot host knows of the inventory; `BootService` starts them."""

    servers: Informer
    racks: Informer
    pools: Informer
    images: Informer

    @classmethod
    def over(cls, cluster: Cluster) -> BootCaches:
        return cls(
            *(Informer(cluster, of(kind), trim=without_managed_fields) for kind in (Server, Rack, NodePool, Image))
        )


class Filler(Protocol):
    """What fills the image store of a boot host by itself: `provisioner.image.retention.fill.StoreFiller`."""

    def attach(self, stored: Callable[[], None]) -> None: ...

    def run(self, stop: threading.Event) -> None: ...

    def wake(self) -> None: ...

    def words(self, name: str) -> str | None: ...


class BootService:
    """One boot host.

    `filler`: None where people fill the image store. `meters` are told what happens, and when `run` has begun, what
    stands. `enter` puts the commands of nginx and dnsmasq into the place
    where these programs are.
    """

    def __init__(
        self,
        settings: BootSettings,
        cluster: Cluster,
        events: Events,
        *,
        caches: BootCaches | None = None,
        blueprints: Sequence[Blueprint] = (),
        filler: Filler | None = None,
        meters: BootMeters | None = None,
        enter: Enter = run_here,
    ) -> None:
        self._settings = settings
        self._enter = enter
        self._blueprints = tuple(blueprints)
        caches = caches or BootCaches.over(cluster)
        self._servers, self._racks, self._pools, self._images = (
            caches.servers, caches.racks, caches.pools, caches.images
        )  # fmt: skip
        self.meters = meters or BootMeters(settings.state / "tftp")
        self._threads: list[threading.Thread] = []
        self._programs: list[Child] = []
        self._index = ServerIndex(self._servers)
        self.renderer = ScriptRenderer(
            self._index,
            pools=self._pools,
            images=self._images,
            racks=self._racks,
            urls=settings.urls,
            folder=settings.state / "scripts",
            meter=self.meters.scripts,
        )
        self.recorder = ProgressRecorder(cluster, self._index, events, meter=self.meters.progress)
        self._servers.subscribe(self.recorder.server_changed)
        self._discoverer = Discoverer(cluster, self._index, self._racks, events)
        self._filler = filler
        self._store = StoreWatch(
            cluster,
            self._images,
            settings.images,
            events,
            host=settings.host,
            waits_for=filler.words if filler is not None else lambda name: None,
        )
        self._cache_watch = CacheWatch(
            cluster,
            events,
            racks=self._racks,
            pools=self._pools,
            images=self._images,
            store=settings.images,
            host=settings.host,
        )
        self._tracer = MachineTracer(
            self._servers,
            self._racks,
            events,
            host=settings.host,
            access_log=settings.state / "log/access.json",
            watch=self._watch_packets,
        )
        self._dhcp = (
            DhcpFeed(settings.dhcp, self.recorder, self._discoverer, self._servers, self._racks, events)
            if settings.dhcp is not None
            else None
        )
        self.health = BootHostHealth(
            address=settings.address,
            caches=(self._servers, self._racks, self._pools, self._images),
            scripts=self.renderer,
            dhcp=(lambda dhcp: lambda: dhcp.workers)(self._dhcp.dhcp) if self._dhcp is not None else None,
            nginx_status=settings.state / "nginx/status.sock",
            tftp=(lambda: self._pid("dnsmasq")) if settings.tftp else None,
            images=settings.images,
            threads=lambda: tuple(self._threads),
        )

    @property
    def ready(self) -> bool:
        """Whether the inventory is known and every script is written."""
        return self.renderer.ready

    def application(self) -> Flask:
        """The Flask application behind nginx."""
        application = Flask("provisioner.boot", static_folder=None)
        application.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
        application.register_blueprint(
            boot_blueprint(
                index=self._index,
                recorder=self.recorder,
                discoverer=self._discoverer,
                ready=lambda: self.ready,
                liveness=self.health.liveness,
                readiness=self.health.readiness,
                meter=self.meters.progress,
            )
        )
        for blueprint in self._blueprints:
            application.register_blueprint(blueprint)
        return application

    def run(self, stop: threading.Event) -> None:
        """Serve until `stop`. Raises: NeedsHuman if a file, a right or a port is missing at the start."""
        files = [file for file in (self._settings.certificate, self._settings.key) if file is not None]
        loaded = stamp_of(files)
        site = self.prepare()
        threads = self._threads
        halt = threading.Event()  # what runs inside ends only once nothing more comes from outside

        def background(name: str, work: Callable[[threading.Event], None]) -> None:
            thread = threading.Thread(target=work, args=(halt,), name=f"boot-{name}", daemon=True)
            thread.start()
            threads.append(thread)

        server = self._listen(site)
        web = threading.Thread(target=server.run, name="boot-web", daemon=True)
        nginx, children = self._children(site)
        self._programs.extend(children)
        tail = LogTail(site.request_log, self.meters.requests.count)
        self._tell(site, tail)
        try:
            self._index.attach()
            self.renderer.attach()
            self._store.attach()
            self._tracer.attach()
            if self._filler is not None:
                self._filler.attach(self._store.wake)
            for informer in (self._racks, self._pools, self._images, self._servers):
                informer.start(halt)
            for name, work in (
                ("renderer", self.renderer.run),
                *((f"recorder-{number}", self.recorder.run) for number in range(RECORDERS)),
                ("discoverer", self._discoverer.run),
                ("store", self._store.run),
                ("caches", self._cache_watch.run),
                ("tracer", self._tracer.run),
                ("access-log", lambda halt: rotate_access_logs((site.access_log, site.request_log), nginx, halt)),
                ("requests", tail.run),
                *((f"probe-{probe.name}", probe.run) for probe in self.health.probes),
                ("certificate", lambda halt: follow_certificate(files, loaded, self._test_nginx(site), nginx, halt)),
            ):
                background(name, work)
            if self._filler is not None:
                background("filler", self._filler.run)
            web.start()
            if self._dhcp is not None:
                self._dhcp.start()
                background("dhcp-feed", self._dhcp.run)
            for child in children:
                background(child.name, child.run)
            log.info("boot service was started", address=self._settings.address, state=str(self._settings.state))
            stop.wait()
        finally:
            if self._dhcp is not None:
                self._dhcp.stop()
            halt.set()
            if self._filler is not None:
                self._filler.wake()
            for waker in (self.renderer, self.recorder, self._discoverer, self._store, self._cache_watch, self._tracer):
                waker.wake()
            for thread in threads:
                thread.join(STOP_SECONDS)
            server.trigger.pull_trigger(server.close)
            web.join(STOP_SECONDS)
            server.task_dispatcher.shutdown(timeout=2)
            log.info("boot service was stopped")

    def _watch_packets(self, macs: frozenset[str]) -> None:
        if self._dhcp is not None:
            self._dhcp.dhcp.trace(macs, self._tracer.heard_dhcp)

    def _tell(self, site: NginxSite, tail: LogTail) -> None:
        """Have the meters tell what stands, whenever they are asked."""
        self.meters.requests.class_of_part = PartClasses(self._images).get
        inventory = InventoryMeter((self._servers, self._racks, self._pools, self._images))
        settings = self._settings
        self.meters.tell(
            [
                inventory.families,
                *told_of_boot_host(
                    renderer=self.renderer,
                    recorder=self.recorder,
                    index=self._index,
                    store=self._store,
                    folders={"image_store": settings.images, "state": settings.state},
                    dhcp=self._dhcp.dhcp if self._dhcp is not None else None,
                    health=self.health,
                    programs=self._programs,
                    slots=site.image_slots,
                    certificate=site.certificate,
                    tail=tail,
                ),
            ]
        )

    def _pid(self, program: str) -> int | None:
        return next((child.pid for child in self._programs if child.name == program), None)

    def prepare(self) -> NginxSite:
        """Lay out the state folder: first-stage files, fixed scripts, and nginx's configuration, which nginx checks."""
        settings = self._settings
        state = settings.state
        as_root = os.geteuid() == 0
        collect_firmware(settings.firmware, state / "tftp", render_first_script(settings.urls))
        (state / "tftp" / PROBE_FILE).write_text("ok\n")
        if self._filler is not None:
            settings.images.mkdir(parents=True, exist_ok=True)
        self.renderer.write_fixed()
        for name in ("scripts", "scripts/ipxe", "tftp", "nginx", "run", "log"):
            (state / name).mkdir(parents=True, exist_ok=True)
            (state / name).chmod(0o755)  # read by nginx's workers and dnsmasq, whatever the umask
        site = NginxSite(
            addresses=(settings.address,),
            scripts=state / "scripts",
            firmware=state / "tftp",
            firmware_files=SERVED_FILES,
            images=settings.images,
            run=state / "nginx",
            socket=state / "run/answers.sock",
            access_log=state / "log/access.json",
            user=settings.user if as_root else None,
            certificate=settings.certificate,
            key=settings.key,
            http_port=settings.http_port,
            join_port=settings.join_port,
            dpu_join_port=settings.dpu_join_port,
            trusted_proxies=settings.trusted_proxies,
            image_slots=settings.image_slots or slots_of_link(link_megabits(settings.address)),
            caches=settings.caches,
            open_files=most_open_files(),
        )
        configuration = site.run / "nginx.conf"
        configuration.write_text(render_nginx(site))
        refusal = find_refusal(self._test_nginx(site))
        if refusal is not None:
            raise NeedsHuman(
                f"nginx refuses {configuration}: {refusal}",
                hint="is nginx installed, and are the certificate and key there?",
            )
        return site

    def _listen(self, site: NginxSite) -> waitress.server.UnixWSGIServer:
        """Open the unix socket that nginx alone may use: the answers believe what its other end says of addresses."""
        server = waitress.server.create_server(
            RealPeer(self.application()),
            unix_socket=str(site.socket),
            unix_socket_perms="660",
            threads=self._settings.threads,
            # RealPeer removes them all, and needs X-Real-IP before.
            clear_untrusted_proxy_headers=False,
            max_request_body_size=MAX_BODY_BYTES,
            channel_timeout=60,
            ident=None,
        )
        server.channel_class = LingeringChannel
        if site.user is not None:
            os.chown(site.socket, 0, grp.getgrnam(site.user).gr_gid)
        return server

    def _heard_of_tftp(self, line: str) -> bool:
        self._tracer.heard_tftp(line)
        return self.meters.tftp.heard(line)

    def _test_nginx(self, site: NginxSite) -> list[str]:
        return self._enter(nginx_command(site.run, site.run / "nginx.conf", test=True))

    def _children(self, site: NginxSite) -> tuple[Child, list[Child]]:
        settings = self._settings
        nginx = Child(
            "nginx",
            nginx_command(site.run, site.run / "nginx.conf"),
            enter=self._enter,
            # One that was killed leaves it behind, and the next one could not have it.
            before=lambda: site.status_socket.unlink(missing_ok=True),
        )
        children = [nginx]
        if settings.tftp:
            command = dnsmasq_command(settings.state / "tftp", settings.address)
            heard = self._heard_of_tftp
            children.append(Child("dnsmasq", command, privileges=run_as(site.user), enter=self._enter, heard=heard))
        return nginx, children
