"""A boot host's web server in Python, which counts what it gives, and can be slow, full, false or gone."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class FakeBootHost:
    """files: by path. pieces: (path, first byte) of each answer. etag: as another host's for the same bytes differs."""

    files: dict[str, bytes]
    etag: str = '"one"'
    bytes_per_second: float | None = None
    is_full: bool = False
    stops_after_bytes: int | None = None
    goes_on: threading.Event = field(default_factory=threading.Event)
    dies_after_bytes: int | None = None
    endless: bool = False
    says_length: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)
    seen_headers: list[dict[str, str]] = field(default_factory=list)
    sent_bytes: int = 0
    url: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def given(self, path: str) -> list[int]:
        """The first bytes of what was asked of a file, sorted."""
        return sorted(first for asked, first in self.asked if asked == path)

    @property
    def is_dead(self) -> bool:
        return self.dies_after_bytes is not None and self.sent_bytes >= self.dies_after_bytes


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def serving_boot_host(host: FakeBootHost, address: str = "127.0.0.1", port: int = 0) -> Iterator[FakeBootHost]:
    # Not pytest-httpserver: this one keeps connections, paces its bytes, stops and dies in the middle of a body.
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            with host.lock:
                host.asked.append((self.path, int(found[1]) if found else 0))
                host.seen_headers.append(dict(self.headers))
            if host.is_dead:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            if host.is_full:
                self._head(503, 0, {"Retry-After": "1"})
                return
            body = host.files.get(self.path)
            if body is None:
                self._head(404, 0, {})
                return
            if host.endless:
                self._head(200, host.says_length, {})
                while True:
                    self.wfile.write(b"x" * 65536)
            first = int(found[1]) if found else 0
            last = min(int(found[2]) if found and found[2] else len(body) - 1, len(body) - 1)
            if found and first > last:
                self._head(416, 0, {})
                return
            spread = {"Content-Range": f"bytes {first}-{last}/{len(body)}"} if found else {}
            self._head(206 if found else 200, last + 1 - first, {"ETag": host.etag, **host.headers, **spread})
            self._send(body[first : last + 1])

        def _head(self, status: int, length: int | None, headers: dict[str, str]) -> None:
            self.send_response(status)
            lengths = {"Content-Length": str(length)} if length is not None else {}
            for name, value in {**lengths, **headers}.items():
                self.send_header(name, value)
            self.end_headers()

        def _send(self, body: bytes) -> None:
            for start in range(0, len(body), 65536):
                piece = body[start : start + 65536]
                if host.bytes_per_second is not None:
                    time.sleep(len(piece) / host.bytes_per_second)
                if host.stops_after_bytes is not None and host.sent_bytes >= host.stops_after_bytes:
                    host.goes_on.wait()
                if host.is_dead:
                    self.close_connection = True
                    self.connection.shutdown(2)
                    return
                self.wfile.write(piece)
                with host.lock:
                    host.sent_bytes += len(piece)

        def handle(self) -> None:
            with suppress(OSError, ValueError):
                super().handle()

    server = _Server((address, port), Handler)
    host.url = f"http://{address}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield host
    finally:
        host.goes_on.set()
        server.shutdown()
        server.server_close()
        thread.join()
