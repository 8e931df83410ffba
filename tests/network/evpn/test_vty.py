"""bgpd's socket for commands, with somebody strange at its other end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from provisioner.network.evpn import vty
from provisioner.network.evpn.bgpd import Bgpd
from provisioner.network.evpn.vty import BgpdFailed, BgpdMissing


def test_where_nobody_listens_bgpd_is_missing(tmp_path: Path) -> None:
    with pytest.raises(BgpdMissing, match="start FRR's bgpd"):
        Bgpd(tmp_path).running()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "bgpd.vty"))
        with pytest.raises(BgpdMissing):
            Bgpd(tmp_path).running()


@contextmanager
def serving(directory: Path, speak: Callable[[socket.socket, threading.Event], object]) -> Iterator[None]:
    """Somebody who takes one session and speaks in it, until the event is set at the end."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(directory / "bgpd.vty"))
        server.listen()
        stop = threading.Event()

        def serve() -> None:
            session, _ = server.accept()
            with session, suppress(OSError):
                speak(session, stop)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def waited_for(directory: Path, patience_seconds: float) -> float:
    """Seconds until it was given up."""
    began = time.monotonic()
    with pytest.raises(BgpdFailed):
        Bgpd(directory, patience_seconds=patience_seconds).running()
    return time.monotonic() - began


@pytest.mark.parametrize("drip", [b"", b"x"], ids=["says nothing", "says a byte now and then"])
def test_one_that_does_not_come_to_an_end_is_waited_for_no_longer_than_was_asked(tmp_path: Path, drip: bytes) -> None:
    def speak(session: socket.socket, stop: threading.Event) -> None:
        while not stop.wait(0.05):
            if drip:
                session.send(drip)

    with serving(tmp_path, speak):
        assert waited_for(tmp_path, patience_seconds=0.4) < 180


def test_a_byte_shortly_before_the_end_buys_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    class FakeSession:
        now, waits = 0.0, list[float]()

        def settimeout(self, seconds: float) -> None:
            self.waits.append(seconds)

        def recv(self, _: int) -> bytes:
            if self.now > 0:
                raise TimeoutError
            self.now = 1.5
            return b"x"

    session = FakeSession()
    monkeypatch.setattr(vty, "time", SimpleNamespace(monotonic=lambda: session.now))
    with pytest.raises(TimeoutError):
        vty._answer(session, "show", deadline=2.0)  # type: ignore[arg-type]
    assert session.waits == [2.0, 0.5]


def test_an_answer_that_is_no_json_has_failed_however_deep_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in ("{", "[]", "[" * 100_000, '{"peers":' * 100_000):
        monkeypatch.setattr("provisioner.network.evpn.bgpd.ask", lambda *_, said=answer: said)
        with pytest.raises(BgpdFailed):
            Bgpd(Path("nowhere")).sessions()
