"""Somebody wants the join service to stand still. docs/threat-model.md, "Neighbour on the boot network"."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import waitress
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler

from provisioner.join.admission import request, web
from provisioner.join.admission.admit import NotYet
from provisioner.join.admission.request import MAX_REQUEST_BYTES
from provisioner.join.admission.web import OF_ALL
from tests.join.front import SECONDS, connect, post_as_nginx, serve
from tests.join.samples import ADDRESS, body

NEIGHBOUR = "10.80.0.99"


class FakeJoinService:
    """A service that counts."""

    def __init__(self) -> None:
        self.calls = 0

    def join(self, request: Any, source_address: str, *, by_dpu: bool = False) -> Any:
        self.calls += 1
        return NotYet("NotOrdered", "nobody ordered it")


@pytest.fixture
def service() -> FakeJoinService:
    return FakeJoinService()


@pytest.fixture
def path(service: FakeJoinService, tmp_path: Path) -> Iterator[Path]:
    with serve(service, tmp_path / "s", monotonic=lambda: 0.0) as socket_path:
        yield socket_path


@pytest.mark.parametrize(
    ("bomb", "status"),
    [
        (b'{"evidence": {"type": "' + b"x" * MAX_REQUEST_BYTES + b'"}}', 413),
        (b"[" * 60_000, 400),
        (b'{"evidence":' * 5_000, 400),
        (b'{"bootID": ' + b"1" * 60_000 + b"}", 400),
        (b'{"bootID": 1e999999}', 400),
        (b"{" + b",".join(b'"k%d":0' % i for i in range(6_000)) + b"}", 400),
        (b"\x1f\x8b\x08\x00" + b"\x00" * 1_000, 400),
    ],
    ids=["oversized", "deep lists", "deep objects", "long number", "infinite number", "many keys", "compressed"],
)
def test_a_bomb_is_refused_and_the_next_machine_is_answered(
    path: Path, service: FakeJoinService, bomb: bytes, status: int
) -> None:
    assert post_as_nginx(path, bomb, NEIGHBOUR).status == status
    assert service.calls == 0
    assert post_as_nginx(path, body(), ADDRESS).status == 425


def test_a_neighbour_who_asks_all_the_time_waits_and_nobody_else_does(path: Path, service: FakeJoinService) -> None:
    statuses = [post_as_nginx(path, body(), NEIGHBOUR).status for _ in range(60)]
    assert statuses.count(429) == 40
    assert service.calls == 20, "what is over the rate never reaches the API server"
    reply = post_as_nginx(path, body(), NEIGHBOUR)
    assert reply.headers["Retry-After"] == "1"
    assert post_as_nginx(path, body(), ADDRESS).status == 425


def _flood(path: Path) -> list[int]:
    """Requests of a neighbour with many addresses, each of which asks once."""
    many = int(OF_ALL.others.burst) + 30
    return [post_as_nginx(path, b"{", f"10.9.{number // 250}.{number % 250}").status for number in range(many)]


def test_a_flood_from_many_addresses_locks_no_registered_server_out(service: FakeJoinService, tmp_path: Path) -> None:
    with serve(service, tmp_path / "k", is_known=lambda source: source == ADDRESS, monotonic=lambda: 0.0) as path:
        statuses = _flood(path)
        assert statuses == [400] * int(OF_ALL.others.burst) + [429] * 30
        assert post_as_nginx(path, body(), ADDRESS).status == 425, "its share is its own"
    assert service.calls == 1


def test_a_flood_from_many_addresses_succeeds_without_the_share_of_registered_servers(path: Path) -> None:
    _flood(path)
    reply = post_as_nginx(path, body(), ADDRESS)
    assert (reply.status, reply.reason) == (429, "TooManyRequests")


def test_asking_all_the_time_succeeds_without_the_limit_of_each_client(
    service: FakeJoinService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "OF_A_CLIENT", OF_ALL.others)
    with serve(service, tmp_path / "u", monotonic=lambda: 0.0) as path:
        assert {post_as_nginx(path, body(), NEIGHBOUR).status for _ in range(60)} == {425}
    assert service.calls == 60


def test_a_bomb_succeeds_without_the_bound_of_its_size(
    path: Path, service: FakeJoinService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read, and parsed."""
    monkeypatch.setattr(web, "MAX_REQUEST_BYTES", 1 << 20)
    monkeypatch.setattr(request, "MAX_PLAIN_REQUEST_BYTES", 1 << 20)
    padded = body() + b" " * MAX_REQUEST_BYTES
    assert post_as_nginx(path, padded, ADDRESS).status == 425
    assert service.calls == 1


def test_malformed_requests_use_up_the_rate_too(path: Path) -> None:
    statuses = [post_as_nginx(path, b"{", NEIGHBOUR).status for _ in range(21)]
    assert statuses == [400] * 20 + [429]


RAW = body()


@contextmanager
def _slow_bodies(path: Path) -> Iterator[list[socket.socket]]:
    """More of them than the server has threads, each with its last byte missing."""
    head = (
        f"POST /v1/join HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\nX-Real-IP: {NEIGHBOUR}\r\n"
        f"Content-Length: {len(RAW)}\r\n\r\n"
    ).encode()
    with ExitStack() as stack:
        slow = [stack.enter_context(connect(path)) for _ in range(16)]
        for connection in slow:
            connection.sendall(head + RAW[:-1])
        yield slow


def _is_answered(path: Path, within_seconds: float) -> bool:
    answered = threading.Event()

    def ask() -> None:
        with suppress(OSError):
            if post_as_nginx(path, body(), ADDRESS).status == 425:
                answered.set()

    threading.Thread(target=ask, daemon=True).start()
    return answered.wait(within_seconds)


def test_slow_bodies_hold_nobody_up(path: Path, service: FakeJoinService) -> None:
    with _slow_bodies(path) as slow:
        assert _is_answered(path, SECONDS)
        assert service.calls == 1
        slow[0].sendall(RAW[-1:])
        assert slow[0].recv(64).startswith(b"HTTP/1.1 425")


class _ReadsInThreads(BaseWSGIServer):
    """As many threads as the other server has; each reads what it answers."""

    def __init__(self, wsgi: Any, *, unix_socket: str, threads: int, **_: object) -> None:
        self._threads = ThreadPoolExecutor(threads)
        super().__init__(f"unix://{unix_socket}", 0, wsgi, handler=_Quiet)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._threads.submit(self._answer, request, client_address)

    def _answer(self, request: Any, client_address: Any) -> None:
        self.finish_request(request, client_address)
        self.shutdown_request(request)

    def run(self) -> None:
        self.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self.shutdown()
        self.server_close()


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        return


def test_slow_bodies_hold_everybody_up_without_a_server_that_reads_them_beforehand(
    service: FakeJoinService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waitress, "create_server", _ReadsInThreads)
    with serve(service, tmp_path / "r", monotonic=lambda: 0.0) as path:
        assert _is_answered(path, SECONDS)
        with _slow_bodies(path):
            assert not _is_answered(path, 2.0)
