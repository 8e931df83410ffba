"""Servers that answer badly, for programs that ask them: as BMCs, as slurmrestd and as an image cache.

    python -m tests.soak.hostile_servers ADDRESS:PORT=MANNER …

Manners: mute (takes the connection and says nothing), drip (a good beginning, then a byte each two seconds), endless
(an answer that never ends, a megabyte a second), nested (an answer of brackets), costly (a valid one of a million
values, in each of its lists), shapeless (valid, of another shape than any honest one), closed (ends each connection at
once).
Runs until SIGTERM, an hour at most; holds at most 64 connections for each.
"""

from __future__ import annotations

import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from provisioner.node.stop_signals import stop_on_signals

MAX_CONNECTIONS: Final = 64
MAX_SECONDS: Final = 3600.0
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def mute(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


def drip(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(HEAD + b"Content-Length: 100000000\r\n\r\n{")
    while True:
        time.sleep(2)
        connection.sendall(b" ")


def endless(connection: socket.socket) -> None:
    connection.recv(65536)
    connection.sendall(HEAD + b"\r\n{")
    while True:
        connection.sendall(b" " * 100_000)
        time.sleep(0.1)


def nested(connection: socket.socket) -> None:
    connection.recv(65536)
    body = b"[" * 200_000
    connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def costly(connection: socket.socket) -> None:
    connection.recv(65536)
    values = b"[" + b"{}," * 1_000_000 + b"{}]"
    body = b'{"nodes":%s,"jobs":%s,"Members":%s}' % (values, values, values)
    connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def shapeless(connection: socket.socket) -> None:
    connection.recv(65536)
    body = b'{"nodes":{"a":[[]]},"jobs":1e999,"paths":[null],"errors":5,"Members":"x","PowerState":[]}'
    connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)


def closed(_connection: socket.socket) -> None:
    return


MANNERS: Final[dict[str, Callable[[socket.socket], None]]] = {
    each.__name__: each for each in (mute, drip, endless, nested, costly, shapeless, closed)
}


def serve(places: dict[tuple[str, int], str], stop: threading.Event) -> None:
    """Until `stop`, at most an hour."""
    ends = time.monotonic() + MAX_SECONDS
    with selectors.DefaultSelector() as selector:
        for place, manner in places.items():
            listener, room = socket.create_server(place, backlog=128), threading.Semaphore(MAX_CONNECTIONS)
            selector.register(listener, selectors.EVENT_READ, (listener, MANNERS[manner], room))
        while not stop.is_set() and time.monotonic() < ends:
            for key, _ in selector.select(0.5):
                listener, manner_of, room = key.data
                connection, _ = listener.accept()
                if room.acquire(blocking=False):
                    threading.Thread(target=_answer, args=(connection, manner_of, room), daemon=True).start()
                else:
                    connection.close()


def _answer(connection: socket.socket, manner: Callable[[socket.socket], None], room: threading.Semaphore) -> None:
    try:
        with connection:
            connection.settimeout(600)
            manner(connection)
    except OSError:
        pass
    finally:
        room.release()


def main(arguments: list[str]) -> None:
    places = {}
    for argument in arguments:
        place, _, manner = argument.partition("=")
        host, _, port = place.rpartition(":")
        places[host, int(port)] = manner
    serve(places, stop_on_signals())


if __name__ == "__main__":
    main(sys.argv[1:])
