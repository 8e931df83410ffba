"""What takes connections outlives a moment in which the machine has nothing to serve them with."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from ipaddress import IPv4Address

import pytest

from provisioner.network.agent.boot.listeners import PAUSE_SECONDS, PeerListener
from provisioner.network.agent.boot.plane import BootServices
from provisioner.network.agent.boot.server import MOST_JOINS, MOST_TO_API_SERVER, passages_of

LOOPBACK = IPv4Address("127.0.0.1")


def greet(connection: socket.socket) -> None:
    connection.sendall(b"hello")


def ask(port: int) -> bytes:
    with socket.create_connection(("127.0.0.1", port), 5) as asking:
        return asking.recv(16)


@pytest.fixture
def port() -> Iterator[int]:
    opened = socket.create_server(("127.0.0.1", 0))
    listener = PeerListener("test", opened, LOOPBACK, 1, greet)
    yield opened.getsockname()[1]
    listener.close()


def test_a_connection_for_which_there_is_no_thread_is_closed_and_the_next_is_served(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ask(port) == b"hello"

    def refuses(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuses)
        assert ask(port) == b""
        assert ask(port) == b""
    assert ask(port) == b"hello"


def test_connections_are_taken_in_measure_however_fast_they_come(port: int) -> None:
    began, taken = time.monotonic(), 0
    while time.monotonic() < began + 20 * PAUSE_SECONDS or taken < 3:
        taken += ask(port) == b"hello"
    assert taken <= (time.monotonic() - began) / PAUSE_SECONDS + 1


@pytest.mark.parametrize("port", [6443, 8443])
def test_an_api_server_whose_port_is_that_of_joins_has_as_many_connections_as_another(port: int) -> None:
    boot_host, api_server = IPv4Address("10.80.0.1"), IPv4Address("10.80.0.5")
    assert {asked: most for asked, _, most in passages_of(BootServices(boot_host, api_server, port))} == {
        (boot_host, 8443): MOST_JOINS,
        (api_server, port): MOST_TO_API_SERVER,
    }
