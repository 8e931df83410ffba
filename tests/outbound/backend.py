"""A backend on loopback that answers by a script: byte by byte without end, too much, or well."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

DRIP_SECONDS = 0.05

Script = Callable[[Callable[[bytes], None], Callable[[bytes], None]], None]
"""What a backend does once it has read the request, given `send` and `drip` (which never ends)."""


@contextmanager
def backend(script: Script, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Its URL. It serves one connection after another, until its clients go away."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def drip(sock: socket.socket, data: bytes) -> None:
        while not over.wait(DRIP_SECONDS):
            sock.sendall(data)

    def serve() -> None:
        while not over.is_set():
            with suppress(OSError):
                plain, _ = listener.accept()
                with context.wrap_socket(plain, server_side=True) if context else plain as sock:
                    sock.recv(65536)
                    script(sock.sendall, lambda data: drip(sock, data))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http{'s' * (context is not None)}://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def answer(body: bytes, *headers: bytes) -> bytes:
    lines = (b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), b"Connection: close", *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


HEAD = b"HTTP/1.1 200 OK\r\n"
