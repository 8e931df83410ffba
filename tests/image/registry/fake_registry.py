"""A registry on loopback that answers as it is told: by the book, or against it. It keeps what it was asked."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

DRIP_SECONDS = 0.05


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


Trick = Callable[["FakeRegistry", Asked, BaseHTTPRequestHandler], bool]
"""Answers in the registry's place, and says so; False lets it answer by the book."""


@dataclass
class FakeRegistry:
    """`trick`: asked first. `blobs`: by digest; `manifests`: by tag and by digest."""

    trick: Trick = lambda registry, asked, handler: False
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    host: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"oci://{self.host}/site/images"

    def count(self, method: str, contains: str = "") -> int:
        return sum(each.method == method and contains in each.path for each in self.asked)

    def answer(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        """By the book: status, headers, body."""
        prefix, _, rest = asked.path.partition("/site/images/")
        kind, _, name = rest.partition("/")
        if prefix != "/v2":
            return 404, {}, b""
        if kind == "blobs" and name.startswith("uploads/"):
            return self._upload(asked, name.removeprefix("uploads/"))
        if kind == "blobs":
            return self._blob(asked, self.blobs.get(name))
        if kind == "manifests":
            return self._manifest(asked, name)
        return 404, {}, b""

    def _blob(self, asked: Asked, blob: bytes | None) -> tuple[int, dict[str, str], bytes]:
        if blob is None:
            return 404, {}, b""
        wanted = asked.headers.get("range", "")
        if wanted.startswith("bytes=") and (begin := int(wanted.removeprefix("bytes=").rstrip("-"))):
            return 206, {"Content-Range": f"bytes {begin}-{len(blob) - 1}/{len(blob)}"}, blob[begin:]
        return 200, {}, blob

    def _upload(self, asked: Asked, name: str) -> tuple[int, dict[str, str], bytes]:
        if asked.method == "POST":
            name = f"u{len(self.uploads)}"
            self.uploads[name] = b""
            return 202, {"Location": f"/v2/site/images/blobs/uploads/{name}?_state=x"}, b""
        if name not in self.uploads or asked.query.get("_state") != "x":
            return 404, {}, b""
        here = {"Location": f"/v2/site/images/blobs/uploads/{name}?_state=x"}
        if asked.method == "GET":
            return 204, {**here, "Range": f"0-{max(len(self.uploads[name]) - 1, 0)}"}, b""
        told = asked.headers.get("content-range")
        if told is not None and int(told.partition("-")[0]) != len(self.uploads[name]):
            return 416, here, b""
        self.uploads[name] += asked.body
        if asked.method == "PATCH":
            return 202, here, b""
        data = self.uploads.pop(name)
        digest = asked.query["digest"]
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:
            return 400, {}, b'{"errors": [{"code": "DIGEST_INVALID", "message": "not what was said"}]}'
        self.blobs[digest] = data
        return 201, {}, b""

    def _manifest(self, asked: Asked, name: str) -> tuple[int, dict[str, str], bytes]:
        if asked.method == "PUT":
            digest = f"sha256:{hashlib.sha256(asked.body).hexdigest()}"
            self.manifests[name] = self.manifests[digest] = asked.body
            return 201, {"Docker-Content-Digest": digest}, b""
        if name not in self.manifests:
            return 404, {}, b'{"errors": [{"code": "MANIFEST_UNKNOWN"}]}'
        if asked.method == "DELETE":
            body = self.manifests[name]
            self.manifests = {key: value for key, value in self.manifests.items() if value != body}
            return 202, {}, b""
        return 200, {}, self.manifests[name]


@contextmanager
def fake_registry(trick: Trick | None = None, address: str = "127.0.0.1") -> Iterator[FakeRegistry]:
    """Serving on a free port of `address`, a loopback one."""
    registry = FakeRegistry() if trick is None else FakeRegistry(trick)

    # Not pytest-httpserver: this one keeps connections, and a trick writes to, floods or cuts the socket itself.
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            asked = Asked(
                self.command,
                parts.path,
                {key: values[0] for key, values in parse_qs(parts.query).items()},
                {key.lower(): value for key, value in self.headers.items()},
                self.rfile.read(int(self.headers.get("Content-Length") or 0)),
            )
            registry.asked.append(asked)
            if not registry.trick(registry, asked, self):
                say(self, *registry.answer(asked))

        do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 (http.server's names)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass  # clients go away, which is what the tests are about

    with Server((address, 0), Handler) as server:
        registry.host = f"{address}:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield registry
        finally:
            registry.over.set()
            server.shutdown()
            thread.join(10)


def say(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
    """An answer by the book, in one piece: of two, the second would wait for the client's word on the first."""
    lengths = {} if status == 204 else {"Content-Length": str(len(body))}
    head = [f"HTTP/1.1 {status} x", *(f"{name}: {value}" for name, value in (headers | lengths).items()), "", ""]
    handler.wfile.write("\r\n".join(head).encode() + (b"" if handler.command == "HEAD" else body))


def cut(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes, after: int) -> None:
    """An answer that ends after so many bytes of its body."""
    handler.send_response(status)
    for name, value in ({"Content-Length": str(len(body))} | headers).items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body[:after])
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.shutdown(2)


def drip(registry: FakeRegistry, handler: BaseHTTPRequestHandler, length: int) -> None:
    """A body of so many bytes, one at a time."""
    handler.send_response(200)
    handler.send_header("Content-Length", str(length))
    handler.end_headers()
    while not registry.over.wait(DRIP_SECONDS):
        handler.wfile.write(b"x")
        handler.wfile.flush()


def flood(registry: FakeRegistry, handler: BaseHTTPRequestHandler) -> None:
    """A body without an end, of which nothing says how long it is."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    ends = time.monotonic() + 60
    while not registry.over.is_set() and time.monotonic() < ends:
        handler.wfile.write(piece)
