"""/healthz and /readyz: what fails them, what must not, and that nobody who reaches the port can keep a probe out."""

from __future__ import annotations

import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.api.machinery.errors import Retryable
from provisioner.cluster import process as process_health
from provisioner.cluster.controller import Controller
from provisioner.cluster.health import server as health_server
from provisioner.cluster.health.checks import Check, HealthVerdict, answer, ill, well
from provisioner.cluster.health.server import MAX_CONNECTIONS, HealthServer
from provisioner.cluster.informer import Informer
from provisioner.cluster.leader import LeaderElector
from provisioner.cluster.process import WORK_SECONDS, Process
from provisioner.cluster.resources import NODES
from provisioner.cluster.work_queue import WorkQueue
from tests.cluster.fake_cluster import FakeCluster
from tests.people import until


def live(process: Process, **asked: Any) -> tuple[int, str]:
    return answer("healthz", process.liveness(), **{"verbose": False} | asked)


def ready(process: Process, **asked: Any) -> tuple[int, str]:
    return answer("readyz", process.readiness(), **{"verbose": False} | asked)


class FakeTime:
    """What `time.monotonic` says in a module, moved by a test."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        real = time.monotonic
        patch.setattr(time, "monotonic", lambda: real() + self.ahead)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def run(controller: Controller, stop: threading.Event) -> threading.Thread:
    thread = threading.Thread(target=controller.run, args=(stop,), daemon=True)
    thread.start()
    return thread


def inventory() -> Controller:
    queue = WorkQueue(clock=lambda: time.monotonic())
    return Controller("inventory", lambda _key: None, queue=queue)


def test_an_answer_is_ok_or_a_line_for_each_check() -> None:
    checks = (Check("caches", lambda: well("22 complete")), Check("api-server", lambda: well()))
    assert answer("readyz", checks, verbose=False) == (200, "ok")
    assert answer("readyz", checks, verbose=True) == (
        200,
        "[+]caches ok: 22 complete\n[+]api-server ok\nreadyz check passed\n",
    )
    checks = (*checks, Check("queues", lambda: ill("they stand\nfor 900 s")))
    words = "[+]caches ok: 22 complete\n[+]api-server ok\n[-]queues failed: they stand for 900 s\nreadyz check failed\n"
    assert answer("readyz", checks, verbose=False) == (503, words)
    status, body = answer("readyz", checks, verbose=False, excluded=("queues",))
    assert (status, body) == (200, "ok")


def test_a_check_that_raises_has_failed_and_tells_no_secret() -> None:
    def broken() -> HealthVerdict:
        raise RuntimeError("password=hunter2")

    status, body = answer("healthz", (Check("a", broken), Check("b", well)), verbose=True)
    assert status == 503
    assert "[-]a failed: the check itself failed: RuntimeError" in body
    assert "[+]b ok" in body
    assert "hunter2" not in body


def test_a_worker_that_hangs_fails_healthz_and_one_that_works_on_does_not(
    stop: threading.Event, later: FakeTime
) -> None:
    hangs, goes_on, process = threading.Event(), threading.Event(), Process(lambda: 1.0)

    def reconcile(key: str) -> None:
        if key == "stuck":
            hangs.set()
            goes_on.wait(300)

    stuck, other = Controller("power", reconcile), Controller("join", reconcile)
    with process.working([stuck, other]):
        run(stuck, stop), run(other, stop)
        stuck.queue.add("stuck")
        assert hangs.wait(180)
        later.ahead = WORK_SECONDS - 60
        other.queue.add("well")
        assert live(process)[0] == 200
        later.ahead = WORK_SECONDS + 60
        status, body = live(process)
        assert status == 503
        assert "[-]workers failed: controller power has worked on one key for" in body
        assert "stuck" not in body
        goes_on.set()
        until(lambda: live(process)[0] == 200)


def test_keys_that_nobody_takes_fail_healthz_and_a_long_queue_that_moves_does_not(
    stop: threading.Event, later: FakeTime
) -> None:
    process, controller = Process(lambda: 1.0), inventory()
    for number in range(1000):
        controller.queue.add(f"server-{number}")
    with process.working([controller]):
        later.ahead = WORK_SECONDS + 60
        status, body = live(process)
        assert (status, "[-]queues failed: 1000 keys of controller inventory stand for" in body) == (503, True)
        assert "server-" not in body
        assert controller.queue.get() is not None
        assert live(process)[0] == 200
        assert "999 keys wait, the oldest for 9" in live(process, verbose=True)[1]


def test_a_worker_that_has_ended_fails_healthz(stop: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(_key: str) -> None:
        raise SystemExit

    monkeypatch.setattr(threading, "excepthook", lambda _arguments: None)
    process, controller = Process(lambda: 1.0), Controller("orders", ends)
    with process.working([controller]):
        running = run(controller, stop)
        controller.queue.add("a")
        until(lambda: live(process)[0] == 503)
        assert "[-]workers failed: 1 worker of controller orders ended" in live(process)[1]
        stop.set()
        running.join(180)
        assert live(process)[0] == 200


class FakeAway(FakeCluster):
    """An API server that nobody reaches."""

    def list(self, *_: Any, **__: Any) -> Any:
        raise Retryable("LIST Node: no answer")

    def get(self, *_: Any, **__: Any) -> Any:
        raise Retryable("GET Lease: no answer")

    def with_timeout(self, _seconds: float) -> Any:
        return self


def test_an_api_server_that_is_away_fails_readyz_and_not_healthz(
    stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered: list[float | None] = [None]
    process, away = Process(lambda: answered[0]), FakeAway()
    process.may_act()
    tried = threading.Event()

    def reconcile(_key: str) -> None:
        tried.set()
        raise Retryable("no answer")

    informer, controller = Informer(away, NODES), Controller("power", reconcile)
    elector = LeaderElector(away, namespace="provisioner-system", name="a", identity="b", retry_seconds=0.01)
    process.stand(elector)
    monkeypatch.setattr(process_health, "ELECTION_SECONDS", 60.0)
    with process.following([informer]), process.working([controller]):
        informer.start(stop)
        run(controller, stop)
        threading.Thread(target=elector.run, args=(stop, lambda _lost: None), daemon=True).start()
        controller.queue.add("a")
        assert tried.wait(180)
        until(lambda: informer.failures > 1)
        assert live(process)[0] == 200
        assert ready(process)[0] == 503
        answered[0] = 59.0
        status, body = ready(process)
        assert (status, "[-]caches failed: not complete: Node" in body) == (503, True)
        assert "[+]api-server ok" in body
        answered[0] = 61.0
        assert "[-]api-server failed: it last answered 61 s ago" in ready(process)[1]


def test_a_standby_is_ready_and_says_so() -> None:
    process = Process(lambda: 2.0)
    assert "[-]accounts failed" in ready(process)[1]
    process.may_act()
    assert ready(process)[0] == 200
    assert "[+]leader ok: stands by" in ready(process, verbose=True)[1]


def test_an_election_that_no_longer_turns_fails_healthz(stop: threading.Event, later: FakeTime) -> None:
    hangs, goes_on, process = threading.Event(), threading.Event(), Process(lambda: 1.0)

    class FakeHanging(FakeAway):
        def get(self, *_: Any, **__: Any) -> Any:
            hangs.set()
            goes_on.wait(300)
            raise Retryable("no answer")

    elector = LeaderElector(FakeHanging(), namespace="provisioner-system", name="lease", identity="b")
    process.stand(elector)
    later.ahead = 600
    assert live(process)[0] == 200
    threading.Thread(target=elector.run, args=(stop, lambda _lost: None), daemon=True).start()
    assert hangs.wait(180)
    assert live(process)[0] == 200
    later.ahead = 1200
    assert "[-]election failed: lease was last asked for 6" in live(process)[1]
    goes_on.set()
    until(lambda: live(process)[0] == 200)


def test_a_leadership_that_ends_and_does_not_let_go_fails_healthz(stop: threading.Event, later: FakeTime) -> None:
    process, leads, goes_on = Process(lambda: 1.0), threading.Event(), threading.Event()
    cluster: Any = FakeLease()
    elector = LeaderElector(
        cluster, namespace="provisioner-system", name="lease", identity="a", retry_seconds=0.02, clock=time.perf_counter
    )
    process.stand(elector)

    def lead(_lost: threading.Event) -> None:
        leads.set()
        goes_on.wait(300)

    threading.Thread(target=elector.run, args=(stop, lead), daemon=True).start()
    assert leads.wait(180)
    later.ahead = 300  # meanwhile it is renewed
    until(lambda: live(process)[0] == 200)
    stop.set()
    until(lambda: not any(thread.name == "leader-renew" for thread in threading.enumerate()))
    assert live(process)[0] == 200
    later.ahead = 600
    assert "[-]election failed" in live(process)[1]
    goes_on.set()
    until(lambda: live(process)[0] == 200)


class FakeLease(FakeCluster):
    """One Lease that anybody may have."""

    def with_timeout(self, _seconds: float) -> Any:
        return self

    def get(self, *_: Any, **__: Any) -> Any:
        return {"metadata": {"name": "lease"}, "spec": {}}

    def replace(self, _type: Any, body: Any, **_: Any) -> Any:
        return body


def test_a_watch_that_hangs_or_has_ended_fails_healthz(stop: threading.Event, later: FakeTime) -> None:
    goes_on, process = threading.Event(), Process(lambda: 1.0)
    informer = Informer(FakeCluster(), NODES)
    informer.subscribe(lambda *_: None)
    with process.following([informer]):
        assert live(process)[0] == 200
        informer._list = lambda: goes_on.wait(300) and "1"  # type: ignore[method-assign, assignment, return-value]
        informer.start(stop)
        later.ahead = WORK_SECONDS + 60
        assert "[-]watches failed: the watch of Node has hung" in live(process)[1]
        stop.set()
        goes_on.set()
        until(lambda: "the watch of Node has ended" in live(process)[1])


def test_a_watch_whose_thread_is_being_started_is_not_taken_for_one_that_has_ended(
    stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, start, seen = Process(lambda: 1.0), threading.Thread.start, []
    informer = Informer(FakeCluster(), NODES)
    with process.following([informer]):

        def start_late(thread: threading.Thread) -> None:
            seen.append(live(process)[0])
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_late)
        informer.start(stop)
    assert seen
    assert set(seen) == {200}


@pytest.fixture
def server() -> Iterator[HealthServer]:
    checks = (Check("a", lambda: well("all is well")), Check("b", lambda: ill("it hangs")))
    made = HealthServer(
        "127.0.0.1",
        0,
        {"/healthz": lambda verbose, excluded: answer("healthz", checks, verbose=verbose, excluded=excluded)},
    )
    yield made
    made.close()


def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=180) as got:  # noqa: S310 - its URL is ours
            return got.status, got.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_health_is_answered_by_http(server: HealthServer) -> None:
    assert ask(server, "/healthz") == (503, "[+]a ok: all is well\n[-]b failed: it hangs\nhealthz check failed\n")
    assert ask(server, "/healthz?exclude=b") == (200, "ok")
    assert ask(server, "/healthz?verbose&exclude=b")[1] == (
        "[+]a ok: all is well\n[+]b excluded: ok\nhealthz check passed\n"
    )
    assert ask(server, "/healthz", "HEAD") == (503, "")
    assert ask(server, "/metrics")[0] == 404
    assert ask(server, "/healthz", "POST")[0] == 405


@pytest.mark.parametrize("asked", ["127.0.0.1", "::1"])
def test_a_wildcard_of_ipv6_is_reached_by_both_families(asked: str) -> None:
    made = HealthServer("::", 0, {"/healthz": lambda *_: (200, "ok")})
    try:
        with socket.create_connection((asked, made.port), timeout=180) as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 200")
    finally:
        made.close()


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00\r\n\r\n", b"GET\r\n\r\n", b"GET http://[ HTTP/1.1\r\n\r\n", b"A" * 5000]
)
def test_what_is_no_request_is_refused_and_the_next_one_is_answered(server: HealthServer, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=180) as client:
        client.sendall(sent)
        assert client.recv(4096).startswith(b"HTTP/1.1 4")
    assert ask(server, "/healthz?exclude=b") == (200, "ok")


def test_who_connects_and_says_nothing_keeps_no_probe_out(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "REQUEST_SECONDS", 600.0)  # it is not their time that is over
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=180) for _ in range(4 * MAX_CONNECTIONS)]
    try:
        for each in idle[::7]:
            each.sendall(b"GET /healthz HT") if each.fileno() >= 0 else None
        assert ask(server, "/healthz?exclude=b") == (200, "ok")
        assert threading.active_count() == before
        assert idle[0].recv(1) == b""  # the first to come is the first to go
    finally:
        for each in idle:
            each.close()


def test_who_drips_is_dropped_in_time(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=180)
    client.sendall(b"GET ")
    ended = threading.Event()

    def drip() -> None:
        while not ended.wait(0.2):
            try:
                client.sendall(b"x")
            except OSError:
                return

    dripping = threading.Thread(target=drip)
    dripping.start()
    assert client.recv(1) == b""
    ended.set()
    dripping.join(180)
    client.close()
