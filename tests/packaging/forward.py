"""Passes connections on from one network namespace to another, by a socket in the file system: a test's control plane
is on the loopback of this machine, and a host in a namespace has a loopback of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def forwarded(port: int, enter: Sequence[str], folder: Path) -> Iterator[None]:
    """127.0.0.1:port of this namespace is there under the same address in the one that `enter` goes to."""
    path = folder / "api-server.sock"
    both = [
        [sys.executable, __file__, "--listen", str(path), "--connect", str(port)],
        [*enter, sys.executable, __file__, "--listen", str(port), "--connect", str(path)],
    ]
    running = [subprocess.Popen(command) for command in both]
    try:
        yield
    finally:
        for each in running:
            each.terminate()
            each.wait(30)


def _listen(where: str) -> socket.socket:
    if where.isdigit():
        return socket.create_server(("127.0.0.1", int(where)))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(where)
    listener.listen()
    return listener


def _connect(where: str) -> socket.socket:
    if where.isdigit():
        return socket.create_connection(("127.0.0.1", int(where)))
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(where)
    return connection


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def main(listen: str, connect: str) -> None:
    with _listen(listen) as listener:
        while True:
            here, _ = listener.accept()
            try:
                there = _connect(connect)
            except OSError:
                here.close()  # the other end is not there yet
                continue
            for pair in ((here, there), (there, here)):
                threading.Thread(target=_pass_on, args=pair, daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[2], sys.argv[4])
