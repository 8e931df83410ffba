"""A call to a backend that drips, floods or redirects ends when it shall, wherever in the answer that happens."""

from __future__ import annotations

import gzip
import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from ipaddress import IPv4Address

import pytest
import requests
import urllib3

from lab.bmc.certificate import obtain_certificate, server_context
from provisioner.outbound.adapter import BoundedAdapter
from provisioner.outbound.deadline import HEAD_BYTES, TooLarge, TooSlow, bounded_call, current_call
from provisioner.outbound.sockets import bound, read_body
from tests.outbound.backend import HEAD, Script, answer, backend

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

SECONDS = 0.4
"""Of a whole call."""
SILENCE_SECONDS = 60.0
"""What the client's time-outs allow between two bytes: a call that ends here was ended by its deadline."""
LIMIT = 200_000


def get(url: str, *, seconds: float = SECONDS, redirects: bool = False, verify: bool = False) -> requests.Response:
    with requests.Session() as session:
        session.trust_env = False
        adapter = BoundedAdapter("the rack's oven", seconds=seconds, max_bytes=LIMIT, redirects=redirects)
        session.mount("http://", adapter)
        session.mount("https://", adapter)
        return session.get(url, timeout=SILENCE_SECONDS, verify=verify)


DRIPS: dict[str, Script] = {
    "nothing at all": lambda send, drip: drip(b""),
    "status line": lambda send, drip: (send(b"HTTP/1.1 200 "), drip(b"O")),
    "interim answers": lambda send, drip: drip(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "header": lambda send, drip: (send(HEAD + b"X-Long: "), drip(b"a")),
    "body": lambda send, drip: (send(HEAD + b"Content-Length: 5000\r\n\r\n"), drip(b"a")),
    "body without length": lambda send, drip: (send(HEAD + b"\r\n"), drip(b"a")),
    "length of a chunk": lambda send, drip: (send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n"), drip(b"0")),
    "chunks": lambda send, drip: (send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n"), drip(b"1\r\na\r\n")),
    "trailers": lambda send, drip: (send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"), drip(b"A: b\r\n")),
}


@pytest.mark.parametrize("where", DRIPS)
def test_a_call_ends_at_its_deadline_wherever_the_answer_drips(where: str) -> None:
    with backend(DRIPS[where]) as url, pytest.raises(TooSlow, match=r"the rack's oven .* may take 0\.4 s in all"):
        get(url)


def test_a_drip_through_tls_ends_at_the_deadline(tls: ssl.SSLContext) -> None:
    with backend(DRIPS["body"], tls) as url, pytest.raises(TooSlow):
        get(url)


def test_a_handshake_that_drips_ends_at_the_deadline() -> None:
    # The head of a TLS record of 16 KiB, and a byte of it now and then.
    with backend(lambda send, drip: (send(b"\x16\x03\x03\x40\x00"), drip(b"a"))) as url, pytest.raises(TooSlow):
        get(url.replace("http:", "https:"))


def test_a_backend_that_does_not_read_ends_the_sending_at_the_deadline() -> None:
    class Endless:
        def __iter__(self) -> Iterator[bytes]:
            while True:
                yield b"a" * 65536

    with backend(lambda send, drip: drip(b"")) as url, requests.Session() as session:
        session.mount("http://", BoundedAdapter("the rack's oven", seconds=SECONDS, max_bytes=LIMIT))
        with pytest.raises(TooSlow):
            session.post(url, data=Endless(), timeout=SILENCE_SECONDS)


def test_an_answer_in_many_pieces_arrives_whole(tls: ssl.SSLContext) -> None:
    body = bytes(range(256)) * 700

    def chunked(send: Callable[[bytes], None], _: object) -> None:
        send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 999):
            piece = body[start : start + 999]
            send(b"%x\r\n%s\r\n" % (len(piece), piece))
        send(b"0\r\n\r\n")

    for context in (None, tls):
        with backend(chunked, context) as url:
            assert get(url, seconds=30).content == body
        with backend(lambda send, _: send(answer(body)), context) as url:
            assert get(url, seconds=30).content == body


@pytest.mark.parametrize(
    "flood",
    [
        lambda send, _: send(answer(b"a" * (LIMIT + HEAD_BYTES + 1))),
        lambda send, _: [send(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000) for _ in range(100_000)],
        lambda send, _: [send(HEAD + b"\r\n"), *(send(b"a" * 65536) for _ in range(100_000))],
        lambda send, _: [
            send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n"),
            *(send(b"1;%s\r\na\r\n" % (b"a" * 9000)) for _ in range(100_000)),
        ],
    ],
    ids=["length", "interim answers", "no length", "extensions of chunks"],
)
def test_an_answer_that_is_too_large_is_not_read_to_its_end(flood: Script) -> None:
    with backend(flood) as url, pytest.raises(TooLarge, match="sent more than 200000 bytes"):
        get(url, seconds=60)


def test_many_headers_are_refused() -> None:
    with (
        backend(lambda send, _: send(answer(b"", *[b"A: b"] * 200))) as url,
        pytest.raises(requests.exceptions.ConnectionError, match="more than 100 headers"),
    ):
        get(url, seconds=30)


def test_a_compressed_answer_is_refused_and_not_unpacked() -> None:
    bomb = gzip.compress(b"\0" * 10_000_000)
    with (
        backend(lambda send, _: send(answer(bomb, b"Content-Encoding: gzip"))) as url,
        pytest.raises(TooLarge, match="Content-Encoding 'gzip', which was not asked for"),
    ):
        get(url, seconds=30)


def test_a_redirect_is_refused_unless_it_is_wanted() -> None:
    with backend(lambda send, _: send(answer(b"here"))) as target:
        redirect = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % target.encode()
        with backend(lambda send, _: send(redirect)) as url:
            with pytest.raises(requests.exceptions.RequestException, match="the rack's oven redirects to"):
                get(url, seconds=30)
            assert get(url, seconds=30, redirects=True).content == b"here"


def test_several_requests_in_one_call_share_its_deadline() -> None:
    elapsed = [0.0]
    pools = urllib3.PoolManager()
    bound(pools)

    def ask(url: str) -> None:
        for _ in range(100):
            assert read_body(pools.request("GET", url, retries=False, preload_content=False)) == b"ok"
            elapsed[0] += 31

    with (
        backend(lambda send, _: send(answer(b"ok"))) as url,
        pytest.raises(TooSlow, match=r"after 31\.0 s"),
        bounded_call("oven", seconds=30, clock=lambda: elapsed[0]),
    ):
        ask(url)
    assert elapsed[0] == 31


@pytest.mark.parametrize("said", [b"HTTP/1.1 200 O", b"HTTP/1.1 200 OK\r\nX-Long: a"], ids=["status line", "header"])
def test_a_proxy_that_drips_is_left_at_the_deadline(said: bytes) -> None:
    with backend(lambda send, drip: (send(said), drip(b"a"))) as url:
        pools = urllib3.ProxyManager(url, timeout=SILENCE_SECONDS)
        bound(pools)
        with pytest.raises(TooSlow), bounded_call("oven", seconds=SECONDS):
            pools.request("GET", "https://oven.example/", retries=False)


def test_a_call_inside_another_ends_no_later_than_that() -> None:
    with bounded_call("outer", seconds=10, clock=lambda: 0.0):
        with bounded_call("inner", seconds=50, clock=lambda: 0.0) as inner:
            assert inner.remaining() == 10
        with bounded_call("inner", seconds=5, clock=lambda: 0.0) as inner:
            assert inner.remaining() == 5
    assert current_call() is None


def test_the_next_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with backend(lambda send, _: send(answer(b"ok"))) as url:
        port = int(url.rstrip("/").rpartition(":")[2])
        gone = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", port))] * 3
        here = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: gone + here)
        assert get(f"http://oven.example:{port}/", seconds=30).content == b"ok"


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder = tmp_path_factory.mktemp("oven")
    obtain_certificate(folder, "oven", IPv4Address("127.0.0.1"), datetime.now(UTC))
    return server_context(folder)
