"""The close after which an answer still arrives, and its bounds."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from provisioner.node.http import lingering_close
from provisioner.node.http.lingering_close import LINGER_BYTES, LingeringClose, linger

PATIENCE_SECONDS = 180.0


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Of a TCP connection: the client's, the server's."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), PATIENCE_SECONDS)
        server, _ = listener.accept()
    with client, server:
        yield client, server


def test_it_is_over_once_the_client_ends_its_direction(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering_close, "LINGER_SECONDS", PATIENCE_SECONDS)
    client, server = ends
    lingering = threading.Thread(target=linger, args=(server,))
    lingering.start()
    assert client.recv(1) == b"", "the server has ended its own direction"
    client.sendall(bytes(1000))
    assert lingering.is_alive()
    client.shutdown(socket.SHUT_WR)
    lingering.join(PATIENCE_SECONDS)
    assert not lingering.is_alive()


def test_it_is_over_after_so_many_bytes(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering_close, "LINGER_SECONDS", PATIENCE_SECONDS)
    client, server = ends

    def flood() -> None:
        with suppress(OSError):
            while True:
                client.sendall(bytes(65536))

    flooding = threading.Thread(target=flood)
    flooding.start()
    taken = 0
    receive = socket.socket.recv

    def counted(connection: socket.socket, size: int) -> bytes:
        nonlocal taken
        got = receive(connection, size)
        taken += len(got)
        return got

    monkeypatch.setattr(socket.socket, "recv", counted)
    linger(server)
    server.close()
    flooding.join(PATIENCE_SECONDS)
    assert not flooding.is_alive()
    assert LINGER_BYTES <= taken < LINGER_BYTES + 65536


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 0.2])
def test_a_client_that_stays_silent_is_waited_for_no_longer_than_the_caller_has_time(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(lingering_close, "LINGER_SECONDS", 2 * PATIENCE_SECONDS)
    began = time.monotonic()
    linger(ends[1], seconds)
    assert time.monotonic() - began < PATIENCE_SECONDS


def test_a_client_that_is_gone_is_no_fault(ends: tuple[socket.socket, socket.socket]) -> None:
    client, server = ends
    server.sendall(b"unread")
    client.close()  # with unread input: a reset
    assert LingeringClose(server).discard() is False
    linger(server)
