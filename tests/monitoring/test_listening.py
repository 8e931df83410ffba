"""Where a service tells of itself: addresses as people and charts write them."""

from __future__ import annotations

import errno
import socket
from ipaddress import IPv4Address

import click
import pytest

from lab.control_plane.ports import free_port
from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cli.service.listening import listen_at, serve_health
from provisioner.cluster.health.checks import Check, well

EVERYWHERE = str(IPv4Address(0))


def heard(where: str) -> list[tuple[str, int]]:
    asked: list[tuple[str, int]] = []
    listen_at(where, "--health-address", lambda address, port: asked.append((address, port)))
    return asked


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (f"{EVERYWHERE}:8081", (EVERYWHERE, 8081)),
        (":8081", (EVERYWHERE, 8081)),
        ("[::]:8081", ("::", 8081)),
        ("[fd00::1]:8081", ("fd00::1", 8081)),
    ],
)
def test_an_address_is_understood(where: str, expected: tuple[str, int]) -> None:
    assert heard(where) == [expected]


@pytest.mark.parametrize("where", ["8081", "10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "a:b"])
def test_what_is_no_address_is_refused_by_the_name_of_its_option(where: str) -> None:
    with pytest.raises(click.BadParameter) as raised:
        heard(where)
    assert raised.value.param_hint == "--health-address"


def test_all_addresses_are_those_of_ipv4_on_a_host_without_ipv6() -> None:
    asked: list[str] = []

    def listen(address: str, _port: int) -> str:
        asked.append(address)
        if ":" in address:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return address

    assert listen_at("[::]:8081", "--health-address", listen) == EVERYWHERE
    with pytest.raises(NeedsHuman):
        listen_at("[fd00::1]:8081", "--health-address", listen)
    assert asked == ["::", EVERYWHERE, "fd00::1"]


def test_a_port_that_is_taken_is_told_with_its_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(NeedsHuman, match=r"--health-address: health cannot be served at 127\.0\.0\.1"):
            serve_health((), (), where)


def test_health_is_answered_by_its_own_thread_and_the_port_is_free_after_it() -> None:
    port = free_port("127.0.0.1")
    server = serve_health((Check("a", lambda: well()),), (), f"127.0.0.1:{port}")
    with socket.create_connection(("127.0.0.1", port), timeout=180) as client:
        client.sendall(b"GET /healthz?verbose HTTP/1.1\r\n\r\n")
        assert b"[+]a ok\nhealthz check passed" in client.recv(4096)
    server.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=180)
