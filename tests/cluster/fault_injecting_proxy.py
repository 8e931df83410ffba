"""A fake way to the real API server that can go wrong on command: a proxy (as `kubectl proxy`) that injects faults.

Everything that is not injected comes from the real API server.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from lab.control_plane.plane import ControlPlane
from provisioner.cluster.client import Cluster


@dataclass(frozen=True)
class Seen:
    """One request that came by, and what was answered (0: nothing)."""

    method: str
    path: str
    query: dict[str, list[str]]
    status: int

    @property
    def watches(self) -> bool:
        return "watch" in self.query


@dataclass
class Injected:
    """An answer that the API server did not give."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


class FaultInjectingProxy:
    """Plain HTTP on loopback before the real API server, with the administrator's credentials."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        pki = plane.directory / "pki"
        self._tls = ssl.create_default_context(cadata=plane.ca_pem)
        self._tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self._changed = threading.Condition()
        self._seen: list[Seen] = []
        self._inject: Callable[[Seen], Injected | None] = lambda _: None
        self._refusing = False
        self._hanging = False
        self._open: list[_OpenStream] = []
        self._closed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def connect(self, directory: Path) -> Cluster:
        """A door through this proxy."""
        port = self._server.server_address[1]
        kubeconfig = directory / f"fault-injecting-{port}.kubeconfig"
        content: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "faulty", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "nobody", "user": {}}],
            "contexts": [{"name": "faulty", "context": {"cluster": "faulty", "user": "nobody"}}],
            "current-context": "faulty",
        }
        kubeconfig.write_text(yaml.safe_dump(content))
        return Cluster.connect(kubeconfig)

    def inject(self, decide: Callable[[Seen], Injected | None]) -> None:
        """Answer what `decide` says, where it says something. It sees the request with status 0."""
        self._inject = decide

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Every connection, old or new, is broken."""
        self._refusing = True
        for stream in self._open:
            _break(stream.handler)
        try:
            yield
        finally:
            self._refusing = False

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """Requests are taken and never answered."""
        self._hanging = True
        try:
            yield
        finally:
            self._hanging = False

    def silence_open_streams(self) -> None:
        """Watches that are open now stay open and say nothing any more. Later ones work."""
        for stream in self._open:
            stream.silent = True

    def seen(self) -> list[Seen]:
        with self._changed:
            return list(self._seen)

    def wait_until(self, condition: Callable[[list[Seen]], bool], timeout_seconds: float = 180) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self._seen), timeout_seconds), self._seen[-20:]

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()

    def _note(self, seen: Seen) -> None:
        with self._changed:
            self._seen.append(seen)
            self._changed.notify_all()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        request = Seen(handler.command, url.path, parse_qs(url.query), 0)
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        if self._refusing:
            self._note(request)
            _break(handler)
            return
        if self._hanging:
            self._note(request)
            self._closed.wait()
            _break(handler)
            return
        injected = self._inject(request)
        if injected is not None:
            self._note(Seen(request.method, request.path, request.query, injected.status))
            handler.send_response(injected.status)
            for name, value in {**injected.headers, "Content-Length": str(len(injected.body))}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(injected.body)
            return
        self._forward(handler, request, body)

    def _forward(self, handler: BaseHTTPRequestHandler, request: Seen, body: bytes) -> None:
        connection = http.client.HTTPSConnection(self._plane.address, self._plane.port, context=self._tls)
        headers = {name: value for name, value in handler.headers.items() if name.lower() != "host"}
        try:
            connection.request(handler.command, handler.path, body or None, headers)
            response = connection.getresponse()
        except OSError:
            self._note(request)
            _break(handler)
            return
        stream = _OpenStream(handler)
        if request.watches:
            self._open.append(stream)
        self._note(Seen(request.method, request.path, request.query, response.status))
        handler.send_response(response.status)
        for name in ("Content-Type", "Retry-After"):
            if value := response.headers.get(name):
                handler.send_header(name, value)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        try:
            while data := response.read1(65536):
                if stream.silent:
                    self._closed.wait()
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            if stream.silent:
                self._closed.wait()
            handler.wfile.write(b"0\r\n\r\n")
        except (OSError, http.client.HTTPException):
            _break(handler)
        finally:
            connection.close()


@dataclass(eq=False)
class _OpenStream:
    handler: BaseHTTPRequestHandler
    silent: bool = False


def status_body(code: int, message: str, **details: object) -> bytes:
    """A Status object as the API server writes it."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return json.dumps({**status, "details": details}).encode()


def _break(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    with suppress(OSError):
        handler.connection.shutdown(socket.SHUT_RDWR)


def _handler_of(proxy: FaultInjectingProxy) -> type[BaseHTTPRequestHandler]:
    # Not pytest-httpserver: this one keeps connections, passes watches on in chunks and breaks them.
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            with suppress(OSError):
                proxy._serve(self)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    return Handler
