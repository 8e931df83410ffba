"""An operation that OpenSSL does not come back from ends with the call, and no other one ends with it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path

import pytest
import requests
import urllib3

from lab.bmc.certificate import obtain_certificate, server_context
from provisioner.outbound.adapter import BoundedAdapter
from provisioner.outbound.deadline import OutboundFailed, TooSlow
from provisioner.outbound.sockets import bound
from provisioner.outbound.watchdog import Watch, Watchdog
from tests.outbound.backend import answer, backend
from tests.outbound.tls_flood import CUT_BYTES, FLOOD_BYTES, HELLO_REQUESTS, flood_tickets, prepare

pytestmark = pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")

PATIENCE = 180.0
SECONDS = 1.0
"""Of a whole call."""
SILENCE_SECONDS = 600.0
"""What the client's own time-outs allow."""


class Oven:
    """A TLS server that floods whoever asks it, and counts what it could send."""

    def __init__(self, directory: Path) -> None:
        obtain_certificate(directory, "oven", IPv4Address("127.0.0.1"), datetime.now(UTC))
        self._context, self._keys = server_context(directory), directory / "keys"
        prepare(self._context, self._keys)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}/"
        self.sent = 0

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                with suppress(OSError), self._context.wrap_socket(plain, server_side=True) as sock:
                    sock.recv(65536)
                    flood_tickets(sock, self._keys, self._count)

    def serve_hello_requests(self) -> None:
        with suppress(OSError):
            while True:
                plain, _ = self._listener.accept()
                with suppress(OSError), plain:
                    for _ in range(16 * FLOOD_BYTES // len(HELLO_REQUESTS)):
                        plain.sendall(HELLO_REQUESTS)
                        self._count(len(HELLO_REQUESTS))

    def _count(self, count: int) -> None:
        self.sent += count

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def oven(tmp_path: Path) -> Iterator[Oven]:
    with closing(Oven(tmp_path)) as made:
        yield made


@pytest.fixture
def flooding(oven: Oven) -> Oven:
    threading.Thread(target=oven.serve, daemon=True).start()
    return oven


@contextmanager
def session(seconds: float = SECONDS) -> Iterator[requests.Session]:
    with requests.Session() as made:
        made.trust_env = False
        for scheme in ("http://", "https://"):
            made.mount(scheme, BoundedAdapter("the rack's oven", seconds=seconds, max_bytes=1000))
        yield made


def test_tickets_without_end_end_with_the_call(flooding: Oven) -> None:
    with (
        session() as client,
        pytest.raises(TooSlow, match=r"the rack's oven was not done after .* may take 1 s in all"),
    ):
        client.get(flooding.url, timeout=SILENCE_SECONDS, verify=False)
    assert flooding.sent < CUT_BYTES, "it was cut off, and did not end by itself"


def test_tickets_without_end_end_with_the_silence_that_is_allowed(flooding: Oven) -> None:
    """They are none of the answer; also for who reads on after the call that began it."""
    pools = urllib3.PoolManager(cert_reqs="CERT_NONE")
    bound(pools)
    with pytest.raises(urllib3.exceptions.ReadTimeoutError):
        pools.request("GET", flooding.url, timeout=urllib3.Timeout(connect=PATIENCE, read=SECONDS), retries=False)
    assert flooding.sent < CUT_BYTES


def test_a_handshake_without_end_ends_with_the_call(oven: Oven) -> None:
    threading.Thread(target=oven.serve_hello_requests, daemon=True).start()
    with session() as client, pytest.raises(TooSlow, match=r"may take 1 s in all"):
        client.get(oven.url, timeout=SILENCE_SECONDS, verify=False)
    assert oven.sent < 16 * CUT_BYTES, "these are read faster than tickets"


def test_another_call_is_answered_while_a_flood_is_read(flooding: Oven) -> None:
    def ask_it() -> None:
        with session() as client, suppress(TooSlow):
            client.get(flooding.url, timeout=SILENCE_SECONDS, verify=False)

    asking = threading.Thread(target=ask_it, daemon=True)
    asking.start()
    with backend(lambda send, _: send(answer(b"ok"))) as url, session(PATIENCE) as client:
        assert client.get(url, timeout=SILENCE_SECONDS).content == b"ok"
    asking.join(PATIENCE)
    assert not asking.is_alive()


class Time:
    """A watchdog whose time is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.watchdog = Watchdog(lambda: self.now)

    def pass_until(self, now: float) -> None:
        """All that is due then is over when this returns."""
        last = threading.Event()
        Watch(self.watchdog).begin(now - self.now, last.set)
        self.now = now
        with self.watchdog.changed:
            self.watchdog.changed.notify()
        assert last.wait(PATIENCE)


def test_what_ended_in_time_is_not_cut_off() -> None:
    time, cut = Time(), threading.Event()
    watch = Watch(time.watchdog)
    watch.begin(10.0, cut.set)
    assert not watch.end()
    time.pass_until(20.0)
    assert not cut.is_set()


def test_the_next_operation_on_a_connection_has_its_own_time() -> None:
    time, cut, next_cut = Time(), threading.Event(), threading.Event()
    watch = Watch(time.watchdog)
    watch.begin(10.0, cut.set)
    watch.end()
    time.pass_until(5.0)
    watch.begin(10.0, next_cut.set)
    time.pass_until(14.0)
    assert not next_cut.is_set(), "as the first would have been"
    time.pass_until(15.0)
    assert next_cut.is_set()
    assert not cut.is_set()
    assert watch.end()


def test_a_shorter_operation_after_a_longer_one_ends_first() -> None:
    time, cut = Time(), threading.Event()
    watch = Watch(time.watchdog)
    watch.begin(1000.0, threading.Event().set)
    watch.end()
    watch.begin(1.0, cut.set)
    time.pass_until(1.0)
    assert cut.is_set()


def test_a_connection_that_is_gone_already_stops_no_other_watch() -> None:
    def fail() -> None:
        raise OSError("gone")

    time = Time()
    watch = Watch(time.watchdog)
    watch.begin(1.0, fail)
    time.pass_until(1.0)
    assert watch.end()
    time.pass_until(2.0)


def test_thousands_of_operations_leave_one_entry() -> None:
    time = Time()
    watch = Watch(time.watchdog)
    for _ in range(5000):
        watch.begin(30.0, threading.Event().set)
        watch.end()
        time.now += 0.001
    assert len(time.watchdog._due) == 1


def test_no_call_is_made_that_nothing_would_end(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    watchdog = Watchdog()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OutboundFailed, match="can't start new thread"):
            Watch(watchdog).begin(1.0, threading.Event().set)
    cut = threading.Event()
    Watch(watchdog).begin(0.0, cut.set)
    assert cut.wait(PATIENCE), "the next one tries again"


@pytest.mark.programs
def test_a_forked_child_has_a_watchdog_of_its_own() -> None:
    before = threading.Event()
    Watch().begin(0.0, before.set)
    assert before.wait(PATIENCE)
    child = os.fork()
    if child == 0:
        signal.alarm(int(PATIENCE))
        cut = threading.Event()
        Watch().begin(0.0, cut.set)
        os._exit(0 if cut.wait(PATIENCE / 2) else 1)
    assert os.waitpid(child, 0)[1] == 0
