"""A store of images over real HTTP, whose answers can be cut, altered, or without ranges."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Fault = Callable[[str, bytes], bytes]
"""Path and body in; the bytes that are sent instead, with the Content-Length of the right ones."""


class FakeImageStore:
    """Serves `files` by path. `asked`: paths with the range asked for. `tls`: speaks that, at http's address."""

    def __init__(self, files: dict[str, bytes], *, ranges: bool = True, tls: ssl.SSLContext | None = None) -> None:
        self.files = files
        self.ranges = ranges
        self.asked: list[tuple[str, str]] = []
        self.fault: Fault = lambda _, body: body
        store = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked_range = self.headers.get("Range", "")
                store.asked.append((self.path, asked_range))
                body = store.files.get(self.path)
                if body is None:
                    self.send_error(404)
                    return
                start = int(asked_range.removeprefix("bytes=").rstrip("-")) if asked_range and store.ranges else 0
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(body) - start))
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
                self.end_headers()
                self.wfile.write(store.fault(self.path, body[start:]))

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeImageStore:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
