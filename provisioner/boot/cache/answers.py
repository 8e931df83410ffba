"""What nginx asks the fetcher for, over a unix socket: files as they come, and signatures."""

from __future__ import annotations

import os
import re
import socket
import socketserver
import struct
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final

from provisioner.boot.cache.growing import DownloadFailed, DownloadFailure, Growing, Whole
from provisioner.boot.cache.paths import ImageFilePath, read_path
from provisioner.node.http.lingering_close import LingeringHandler

_RANGE: Final = re.compile(r"bytes=([0-9]{1,15})-([0-9]{1,15})?\Z")
_PIECE: Final = 1 << 20
SEND_SECONDS: Final = 120
"""So long nginx may take nothing."""


def read_range(said: str | None, size_bytes: int) -> tuple[int, int] | None:
    """First byte, and the one behind the last; the whole where no range that is understood was asked for. None: there
    is nothing in it."""
    found = _RANGE.match(said or "")
    if found is None:
        return 0, size_bytes
    first = int(found[1])
    end = min(int(found[2]) + 1, size_bytes) if found[2] is not None else size_bytes
    return (first, end) if first < end else None


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 1024


def answer_server(
    path: Path, open_file: Callable[[ImageFilePath], Growing | Whole], read_signature: Callable[[ImageFilePath], bytes]
) -> _Server:
    """A server on the socket `path`, which is made anew. Both calls may raise Failed."""

    class Handler(LingeringHandler, BaseHTTPRequestHandler):
        def setup(self) -> None:
            # By the kernel, not by Python: sendfile wants a socket that blocks.
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", SEND_SECONDS, 0))
            self.request.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", SEND_SECONDS, 0))
            super().setup()

        def log_message(self, *_: object) -> None:
            """nginx writes the access log."""

        def address_string(self) -> str:
            return "nginx"

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            asked = read_path(self.path)
            try:
                if asked is None:
                    raise DownloadFailed(DownloadFailure(404, "there is nothing of that name"))
                if asked.name == "manifest.sig":
                    self._give_small(read_signature(asked))
                else:
                    self._give(open_file(asked))
            except DownloadFailed as error:
                self._begin(error.failure.status, 0, {})

        def _give_small(self, content: bytes) -> None:
            self._begin(200, len(content), {})
            if self.command != "HEAD":
                self.wfile.write(content)

        def _give(self, file: Growing | Whole) -> None:
            size = file.size_bytes
            span = read_range(self.headers.get("Range"), size)
            if span is None:
                self._begin(416, 0, {"Content-Range": f"bytes */{size}"})
                return
            first, end = span
            descriptor = file.open()
            try:
                # What fails before the first byte is there is told by a status; later the connection ends.
                limit = file.wait_beyond(first) if self.command != "HEAD" else end
                ranged = {"Content-Range": f"bytes {first}-{end - 1}/{size}"} if (first, end) != (0, size) else {}
                self._begin(206 if ranged else 200, end - first, {"Accept-Ranges": "bytes", **ranged})
                with suppress(OSError):  # Failed is one, too: the connection ends before what its length said
                    while first < end and self.command != "HEAD":
                        if first >= limit:
                            limit = file.wait_beyond(first)
                        first += os.sendfile(
                            self.connection.fileno(), descriptor, first, min(limit, end, first + _PIECE) - first
                        )
            finally:
                os.close(descriptor)

        def _begin(self, status: int, length: int, headers: dict[str, str]) -> None:
            self.send_response_only(status)
            for name, value in {"Content-Length": str(length), "Connection": "close", **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.flush()

    path.unlink(missing_ok=True)
    server = _Server(str(path), Handler)
    path.chmod(0o666)  # nginx's workers are somebody else; whoever may open it may fetch images here as well
    return server
