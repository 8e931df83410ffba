"""A request that a server of ours refuses before it has read it: the client learns why, and holds nothing for long."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, make_wsgi_app

from provisioner.boot.cache.answers import answer_server
from provisioner.boot.cache.growing import DownloadFailed, DownloadFailure
from provisioner.cluster.health.server import HealthServer
from provisioner.cluster.metrics_server import serve_in_background
from provisioner.join.credentials import web as authorizer
from provisioner.network.agent.boot import listeners
from provisioner.network.agent.boot.image_cache import ImageCache
from provisioner.network.agent.boot.plane import BootingHost, BootServices
from provisioner.network.agent.boot.proxy import Proxy
from provisioner.node.http import lingering_close
from tests.join.test_authorizer import Site
from tests.web.conftest import served
from tests.web.made_up_fleet import make_fleet

PATIENCE_SECONDS = 180.0
BODY_BYTES = 256 * 1024
LOOPBACK = "127.0.0.1"

Connect = Callable[[], socket.socket]
"""A connection to a server, with TLS where it has that."""


def plain(port: int) -> Connect:
    return partial(socket.create_connection, (LOOPBACK, port), PATIENCE_SECONDS)


@contextmanager
def the_authorizer(folder: Path) -> Iterator[Connect]:
    site = Site(folder)
    context = site.context(site.client)

    def connect() -> ssl.SSLSocket:
        return context.wrap_socket(plain(site.server.port)(), server_hostname=LOOPBACK)

    try:
        yield connect
    finally:
        site.close()


@contextmanager
def metrics(_: Path) -> Iterator[Connect]:
    server = serve_in_background(make_wsgi_app(CollectorRegistry()), LOOPBACK, 0)
    yield plain(server.server_port)
    server.shutdown()
    server.server_close()


@contextmanager
def health(_: Path) -> Iterator[Connect]:
    server = HealthServer(LOOPBACK, 0, {})
    yield plain(server.port)
    server.close()


@contextmanager
def pages(_: Path) -> Iterator[Connect]:
    site = served(make_fleet(8))
    site.start()
    yield plain(site.port)
    site.stop()


@contextmanager
def the_fetcher_of_a_cache(folder: Path) -> Iterator[Connect]:
    def nothing(_: object) -> bytes:
        raise DownloadFailed(DownloadFailure(404, "nothing is kept here"))

    path = folder / "fetcher.sock"
    server = answer_server(path, nothing, nothing)  # type: ignore[arg-type]
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(PATIENCE_SECONDS)
        made.connect(str(path))
        return made

    yield connect
    server.shutdown()
    server.server_close()


@contextmanager
def a_dpu_for_its_host(folder: Path) -> Iterator[Connect]:
    address = IPv4Address(LOOPBACK)
    proxy = Proxy(BootServices(address, address), ImageCache(folder / "cache", 1 << 20), lambda _: None)
    host = BootingHost("pf0", "52:54:00:00:01:00", address)
    opened = socket.create_server((LOOPBACK, 0))
    listener = listeners.PeerListener("boot-http", opened, address, 16, lambda each: proxy.answer(each, host))
    yield plain(opened.getsockname()[1])
    listener.close()


SERVERS = {
    "authorizer": (the_authorizer, authorizer.PATH, 413),
    "metrics": (metrics, "/metrics", 405),
    "health": (health, "/healthz", 405),
    "pages": (pages, "/login", 413),
    "cache": (the_fetcher_of_a_cache, "/images/", 501),
    "DPU": (a_dpu_for_its_host, "/v1/progress", 400),
}


class Refusing:
    """A server, a request that it refuses before it has read the body, and the status by which it does."""

    def __init__(self, connect: Connect, path: str, status: int) -> None:
        self._connect, self._path, self._status = connect, path, status

    def refused(self) -> socket.socket:
        """A connection on which the refusal has begun to arrive, and nothing of the body has been sent."""
        connection = self._connect()
        connection.sendall(
            f"POST {self._path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nContent-Length: {BODY_BYTES}\r\n\r\n".encode()
        )
        assert connection.recv(1) == b"H"
        return connection

    def read_refusal(self, connection: socket.socket) -> None:
        """The rest of it, to the end. The server has ended its direction by then."""
        answer = b"H" + b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        first, *headers = head.lower().split(b"\r\n")
        assert first.startswith((b"http/1.0 %d " % self._status, b"http/1.1 %d " % self._status)), answer
        lengths = [line for line in headers if line.startswith(b"content-length:")]
        assert lengths in ([], [b"content-length: %d" % len(body)]), answer


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusing]:
    monkeypatch.setattr(listeners, "PAUSE_SECONDS", 0.0)
    serve, path, status = SERVERS[request.param]
    with serve(tmp_path) as connect:
        yield Refusing(connect, path, status)


def test_who_is_refused_while_it_still_sends_reads_why(server: Refusing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering_close, "LINGER_SECONDS", PATIENCE_SECONDS)  # however slow this machine is
    for _ in range(100):
        with server.refused() as connection:
            for _ in range(3):
                connection.sendall(bytes(8192))
            server.read_refusal(connection)


def test_who_sends_on_and_on_after_the_refusal_is_cut_off(server: Refusing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lingering_close, "LINGER_SECONDS", 0.3)
    with ExitStack() as stack:
        connection = stack.enter_context(server.refused())
        server.read_refusal(connection)
        deadline = time.monotonic() + PATIENCE_SECONDS

        def drip() -> None:
            while time.monotonic() < deadline:
                connection.sendall(b"x")
                time.sleep(0.05)

        with pytest.raises((ConnectionError, ssl.SSLError)):
            drip()
    with server.refused() as connection:
        server.read_refusal(connection)
