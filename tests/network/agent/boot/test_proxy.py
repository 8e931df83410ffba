"""What a host's connection is answered, with a boot host on loopback."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from werkzeug import Response

from provisioner.network.agent.boot.image_cache import ImageCache
from provisioner.network.agent.boot.plane import BootingHost, BootServices
from provisioner.network.agent.boot.proxy import SAY_SECONDS, Proxy
from tests.http_peer import HttpPeer

LOOPBACK = IPv4Address("127.0.0.1")
HOST = BootingHost("pf0", "52:54:00:00:01:00", IPv4Address("10.80.0.21"))
FIRST_STAGE = b"MZ" * 1000

FULL = "/images/parts/sha256-" + "f" * 64


class Asking:
    """A proxy, what it said, and its clock."""

    def __init__(self, folder: Path, port: int) -> None:
        self.said: list[str] = []
        self.now = 1000.0
        cache = ImageCache(folder / "cache", 1 << 20)
        cache.empty()
        services = BootServices(LOOPBACK, LOOPBACK)
        self.proxy = Proxy(services, cache, self.said.append, http_port=port, clock=lambda: self.now)

    def ask(self, request: bytes) -> tuple[bytes, bytes]:
        """Head and body of the answer."""
        host, dpu = socket.socketpair()
        with host, dpu:
            host.sendall(request)
            self.proxy.answer(dpu, HOST)
            dpu.shutdown(socket.SHUT_WR)
            head, _, body = b"".join(iter(lambda: host.recv(65536), b"")).partition(b"\r\n\r\n")
        return head, body


@pytest.fixture
def asking(tmp_path: Path, httpserver: HttpPeer) -> Asking:
    httpserver.no_handler_status_code = 404
    httpserver.expect_request(FULL).respond_with_data(status=503)
    httpserver.expect_request("/tftp/snponly.efi").respond_with_data(FIRST_STAGE)
    httpserver.expect_request("/boot.ipxe").respond_with_handler(lambda _: Response(iter([b"of unknown size"])))
    return Asking(tmp_path, httpserver.port)


def test_firmware_that_boots_by_http_is_told_first_how_large_the_file_is(asking: Asking) -> None:
    size = f"Content-Length: {len(FIRST_STAGE)}".encode()
    head, body = asking.ask(b"HEAD /tftp/snponly.efi HTTP/1.1\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ")
    assert size in head.split(b"\r\n")
    assert body == b""
    head, body = asking.ask(b"GET /tftp/snponly.efi HTTP/1.1\r\n\r\n")
    assert size in head.split(b"\r\n")
    assert body == FIRST_STAGE
    assert asking.ask(b"HEAD /boot.ipxe HTTP/1.1\r\n\r\n")[0].startswith(b"HTTP/1.1 502 "), "its size is not known"


def test_a_host_is_told_to_ask_again_where_the_boot_host_is_full(asking: Asking) -> None:
    head, _ = asking.ask(f"GET {FULL} HTTP/1.1\r\n\r\n".encode())
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 10" in head.split(b"\r\n")


def test_what_a_host_asks_for_in_vain_is_said_now_and_then(asking: Asking) -> None:
    for each in range(20):
        head, _ = asking.ask(f"GET /images/sha256-{each:064}/manifest HTTP/1.1\r\n\r\n".encode())
        assert head.startswith(b"HTTP/1.1 502 ")
    assert len(asking.said) == 1
    asking.now += SAY_SECONDS
    asking.ask(b"GET /images/sha256-" + b"f" * 64 + b"/manifest HTTP/1.1\r\n\r\n")
    assert len(asking.said) == 2
