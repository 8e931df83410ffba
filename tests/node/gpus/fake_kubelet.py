"""A fake kubelet's pod-resources service: one connection, one answer of made-up frames."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    length, size = len(content), b""
    while True:
        size += bytes([length & 127 | (128 if length > 127 else 0)])
        length >>= 7
        if not length:
            return bytes([number << 3 | 2]) + size + content


def pod(namespace: str, name: str, *devices: str, container: str = "main") -> bytes:
    """A PodResources whose one container has these devices, two cores and some memory."""
    given = field(1, b"nvidia.com/gpu") + b"".join(field(2, each.encode()) for each in devices) + field(3, b"")
    cores, memory = field(3, bytes([0, 1])), field(4, field(1, b"memory") + b"\x10\x80\x80\x04")
    inside = field(1, container.encode()) + field(2, given) + cores + memory
    return field(1, field(1, name.encode()) + field(2, namespace.encode()) + field(3, inside))


def frame(type_: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", type_, flags, stream) + payload


def answer(message: bytes, size: int = 16384) -> bytes:
    """As a gRPC server sends it: settings, fields, data in frames, a ping in between, trailers."""
    body = struct.pack(">BI", 0, len(message)) + message
    data = b"".join(frame(0, 0, 1, body[at : at + size]) for at in range(0, len(body), size))
    return (
        frame(4, 0, 0) + frame(4, 1, 0) + frame(1, 4, 1, b"\x88") + frame(6, 0, 0, b"12345678") + data + frame(1, 5, 1)
    )


@contextmanager
def fake_kubelet(path: Path, reply: bytes | None) -> Iterator[list[bytes]]:
    """Answers every connection with `reply`, with nothing if that is None. Yields what was asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def serve() -> None:
            kept = []
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    break
                kept.append(connection)
                asked.append(connection.recv(65536))
                if reply is not None:
                    connection.sendall(reply)
                    connection.shutdown(socket.SHUT_WR)
            for connection in kept:
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield asked
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            path.unlink()
