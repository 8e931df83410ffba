"""`provisioner web`, put together: copies, fleet, frames, pages, and the server that answers.

Each live stream holds a thread of the WSGI server, of which there are as many as streams are allowed, and some more for
pages. A client that takes nothing is cut off by the kernel; one that sends nothing, by the server.
"""

from __future__ import annotations

import gzip
import socket
import threading
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog
import waitress.server
import waitress.wasyncore
from flask import Flask, Response, g, request

from provisioner.api.machinery.errors import NeedsHuman, ProvisionerError
from provisioner.api.machinery.wording import plain
from provisioner.cluster.client import Cluster
from provisioner.cluster.leadership import NoLeader, read_no_leader
from provisioner.cluster.lingering_channel import LingeringChannel
from provisioner.web.access.gate import Gate
from provisioner.web.access.guard import Guard, plain_answer
from provisioner.web.broadcast import Broadcast
from provisioner.web.caches import WebCaches
from provisioner.web.fleet import Fleet
from provisioner.web.follow import FleetFollower
from provisioner.web.pages.fleet import fleet_pages
from provisioner.web.pages.live import live_pages
from provisioner.web.pages.maintenances import maintenance_pages
from provisioner.web.pages.pools import pool_pages
from provisioner.web.pages.server import server_pages
from provisioner.web.pages.session import health_pages, session_pages
from provisioner.web.pages.site import POOL_SECONDS, USUAL_SECONDS, Site, as_text, filters
from provisioner.web.server_events import EventReader
from provisioner.web.shared import Shared
from provisioner.web.telling import Words
from provisioner.web.viewers import OF_ONE, Viewers

log = structlog.get_logger()

PAGE_THREADS: Final = 12
SPARE_CONNECTIONS: Final = 100
ROOM: Final = 20
"""Of these, for who comes while others hold all connections."""
UNREAD_SECONDS: Final = 20
"""A client that acknowledges nothing, or whose window stays shut, for so long is gone."""
IDLE_SECONDS: Final = 30
MOST_SENT_BYTES: Final = 16 * 1024
"""Of a request: headers, and the one form that there is."""
UNSENT_BYTES: Final = 4 * 1024 * 1024
COMPRESSED_FROM_BYTES: Final = 2048
STOP_SECONDS: Final = 5
LEADERS_SECONDS: Final = 15.0
"""Leases are read no more often, for all who look."""
LEADERS_ANSWER_SECONDS: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class Listening:
    """Where, to whom, and for how many. audience: whom tokens must be for. hosts: names that are answered to; empty:
    any."""

    address: str
    port: int
    with_tokens: bool
    audience: str | None
    hosts: Collection[str]
    viewers: int


class WebService:
    """events: None where they are not asked for. cluster: for reviews of tokens, and Events; None for neither."""

    def __init__(
        self,
        caches: WebCaches,
        words: Words,
        listening: Listening,
        *,
        cluster: Cluster | None,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._listening = listening
        self.fleet = Fleet()
        self.broadcast = Broadcast(uuid.uuid4().hex[:8])
        self.follower = FleetFollower(caches, self.fleet, self.broadcast)
        gate = None
        if listening.with_tokens:
            assert cluster is not None  # noqa: S101 - who wires it up knows
            gate = Gate(cluster, listening.audience, monotonic)
        self.site = Site(
            caches=caches,
            fleet=self.fleet,
            broadcast=self.broadcast,
            words=words,
            events=EventReader(cluster, monotonic) if cluster is not None else None,
            no_leader=leader_reader(cluster, now, monotonic),
            guard=Guard(gate=gate, hosts=listening.hosts),
            # Without tokens nobody is told apart from another.
            viewers=Viewers(listening.viewers, OF_ONE if listening.with_tokens else listening.viewers),
            now=now,
            monotonic=monotonic,
            usual=Shared(USUAL_SECONDS, monotonic),
            pools=Shared(POOL_SECONDS, monotonic),
        )
        self.app = build_app(self.site, gate, listening.audience, lambda: self.follower.is_caught_up)

    def bind(self) -> Any:
        """The server, listening. Raises: NeedsHuman if it cannot."""
        listening = self._listening
        try:
            listener = listen_at(listening.address, listening.port)
        except OSError as error:
            raise NeedsHuman(
                f"cannot listen at {listening.address}:{listening.port}: {error}", hint="name another with --listen"
            ) from error
        server = waitress.server.create_server(
            self.app,
            sockets=[listener],
            threads=listening.viewers + PAGE_THREADS,
            connection_limit=listening.viewers + SPARE_CONNECTIONS,
            channel_timeout=IDLE_SECONDS,
            max_request_header_size=MOST_SENT_BYTES,
            max_request_body_size=MOST_SENT_BYTES,
            outbuf_high_watermark=UNSENT_BYTES,
            ident="provisioner",
            clear_untrusted_proxy_headers=True,
        )
        server.channel_class = LingeringChannel
        make_room(server, listening.viewers + SPARE_CONNECTIONS - ROOM)
        return server

    def run(self, server: Any, stop: threading.Event) -> None:
        """Follow and answer until `stop` is set."""
        follower = threading.Thread(target=self.follower.run, args=(stop,), name="fleet", daemon=True)
        ended = threading.Event()
        web = threading.Thread(target=answer_until, args=(server, ended), name="web", daemon=True)
        for thread in (follower, web):
            thread.start()
        log.info("web pages are served", address=self._listening.address, port=server.effective_port)
        stop.wait()
        self.broadcast.close()
        server.task_dispatcher.shutdown(timeout=STOP_SECONDS)
        ended.set()
        for thread in (web, follower):
            thread.join(STOP_SECONDS)


def make_room(server: Any, most: int) -> None:
    """Whoever reaches the port may connect and say nothing, or little: beyond `most` connections those that have waited
    longest for a request are closed for who comes. Left to itself, the server would take nobody in any more."""
    readable = server.readable

    def make_room_first() -> bool:
        if len(server._map) >= most:  # noqa: SLF001
            waiting = [each for each in server.active_channels.values() if not each.requests and not each.will_close]
            for channel in sorted(waiting, key=lambda each: each.creation_time)[:ROOM]:
                channel.will_close = True
        return bool(readable())

    server.readable = make_room_first


def answer_until(server: Any, ended: threading.Event) -> None:
    """Waitress' own loop, in turns of a second at most, until `ended`; then this thread closes every connection."""
    connections = server._map  # noqa: SLF001 - which its own loop takes, too
    while not ended.is_set():
        waitress.wasyncore.loop(timeout=1.0, use_poll=True, map=connections, count=1)  # select() knows 1024 descriptors
    waitress.wasyncore.close_all(connections)


def listen_at(address: str, port: int) -> socket.socket:
    """A bound socket; what it is told holds for each connection that it accepts. Raises: OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # [::] is every address of both families
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
        listener.bind((address, port))
    except OSError:
        listener.close()
        raise
    return listener


def leader_reader(
    cluster: Cluster | None, now: Callable[[], datetime], monotonic: Callable[[], float]
) -> Callable[[], NoLeader | None]:
    """Reads which groups of controllers nobody leads, once for all who look."""
    if cluster is None:
        return lambda: None
    asked, kept = cluster.with_timeout(LEADERS_ANSWER_SECONDS), Shared[NoLeader | None](LEADERS_SECONDS, monotonic)
    return lambda: kept.get("", lambda: read_no_leader(asked, now()))


def build_app(site: Site, gate: Gate | None, audience: str | None, is_ready: Callable[[], bool]) -> Flask:
    """All the pages, behind the guard."""
    app = Flask("provisioner.web", static_folder="static", template_folder="templates")
    app.jinja_options = {"trim_blocks": True, "lstrip_blocks": True, "finalize": as_text}
    app.jinja_env.filters |= filters(site.now)
    app.config["SEND_FILE_MAX_AGE_DEFAULT"] = 3600
    app.config["MAX_CONTENT_LENGTH"] = MOST_SENT_BYTES
    site.guard.watch_over(app)

    @app.before_request
    def begin() -> Response | None:
        g.live_id = site.broadcast.last_id  # before anything is read: what comes after it is told
        if not is_ready() and request.endpoint not in ("health.healthz", "health.readyz", "static"):
            return Response("the fleet is not known yet: try again in some seconds\n", 503, {"Retry-After": "2"})
        return None

    for pages in (
        fleet_pages(site),
        server_pages(site),
        maintenance_pages(site),
        pool_pages(site),
        live_pages(site),
        session_pages(gate, audience),
        health_pages(is_ready),
    ):
        app.register_blueprint(pages)
    app.register_error_handler(ProvisionerError, unreadable)
    app.after_request(compress)
    return app


def unreadable(error: Exception) -> Response:
    """An object that a newer or older CRD let in, of which this program makes nothing."""
    log.warning("page not made", path=request.path, error=str(error))
    return plain_answer(500, f"an object that this page shows cannot be read: {plain(str(error))}")


def compress(answer: Response) -> Response:
    """Pages, for who takes gzip: a fleet of 10,000 servers is a twentieth then."""
    body_is_ours = not answer.direct_passthrough and answer.mimetype == "text/html" and not answer.is_streamed
    if not body_is_ours or request.accept_encodings.quality("gzip") <= 0:
        return answer
    answer.headers["Vary"] = "Accept-Encoding"
    body = answer.get_data()
    if len(body) >= COMPRESSED_FROM_BYTES:
        answer.set_data(gzip.compress(body, 1, mtime=0))
        answer.headers["Content-Encoding"] = "gzip"
    return answer
