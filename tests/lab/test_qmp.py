"""The monitor client against a scripted QEMU: answers, events, and a QEMU that goes away."""

from __future__ import annotations

import json
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lab.machine.qmp import MonitorGone, QmpClient


class FakeQemu:
    """Greets, accepts every command, and can send events, refuse, or hang up."""

    def __init__(self, path: Path) -> None:
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen()
        self.commands: queue.Queue[str] = queue.Queue()
        self.refuse: set[str] = set()
        self.hang_up_on: set[str] = set()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        connection, _ = self._server.accept()
        with connection, connection.makefile("rwb") as stream:
            self._send(stream, {"QMP": {"version": {}, "capabilities": []}})
            for line in stream:
                command = json.loads(line)["execute"]
                self.commands.put(command)
                if command in self.hang_up_on:
                    return
                self._send(stream, {"event": "RESET", "data": {"guest": True}})
                if command in self.refuse:
                    self._send(stream, {"error": {"class": "GenericError", "desc": "not now"}})
                else:
                    self._send(stream, {"return": {"to": command}})

    @staticmethod
    def _send(stream: Any, message: dict[str, Any]) -> None:
        stream.write(json.dumps(message).encode() + b"\r\n")
        stream.flush()

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def qemu(short_directory: Path) -> Iterator[FakeQemu]:
    with closing(FakeQemu(short_directory / "qmp.sock")) as made:
        yield made


@pytest.fixture
def events() -> queue.Queue[str]:
    return queue.Queue()


@pytest.fixture
def client(qemu: FakeQemu, short_directory: Path, events: queue.Queue[str]) -> Iterator[QmpClient]:
    with closing(QmpClient(short_directory / "qmp.sock", lambda name, data: events.put(name))) as made:
        made.connect()
        yield made


def test_it_negotiates_then_commands_and_hears_events(
    qemu: FakeQemu, client: QmpClient, events: queue.Queue[str]
) -> None:
    assert client.execute("query-status") == {"to": "query-status"}
    assert [qemu.commands.get(timeout=180) for _ in range(2)] == ["qmp_capabilities", "query-status"]
    assert events.get(timeout=180) == "RESET"


def test_what_qemu_refuses_is_told_in_its_words(qemu: FakeQemu, client: QmpClient) -> None:
    qemu.refuse.add("stop")
    with pytest.raises(MonitorGone, match="refused stop: not now"):
        client.execute("stop")
    assert client.execute("cont") == {"to": "cont"}, "the next answer is not mistaken for the last one"


def test_a_qemu_that_goes_away_is_noticed_at_once(qemu: FakeQemu, client: QmpClient) -> None:
    qemu.hang_up_on.add("quit")
    with pytest.raises(MonitorGone, match="was closed during quit"):
        client.execute("quit")


def test_no_qemu_and_a_path_too_long_are_told_apart(short_directory: Path) -> None:
    with pytest.raises(MonitorGone, match="does not accept"):
        QmpClient(short_directory / "absent.sock", lambda name, data: None).connect()
    with pytest.raises(ValueError, match="shorter lab directory"):
        QmpClient(Path("/" + "x" * 200), lambda name, data: None).connect()
