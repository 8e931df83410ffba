"""A BMC in an attacker's hands: it logs its clients in as honest ones do, and answers what it chooses as it likes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final, cast

from lab.bmc.handler import BmcHandler
from provisioner.api.machinery.values import Secret
from provisioner.power.bmc.power_controller import BmcAccess
from tests.lab.fake_machine import PASSWORD, USERNAME, FakeServer, fake_server
from tests.outbound.tls_flood import flood_tickets, prepare

ENDLESS_BYTES: Final = 1 << 30
"""What an attack sends that is not cut off; a test of it fails, and does not hang."""
DRIP_SECONDS: Final = 0.05
DRIP_BYTES: Final = 1200
"""So many, one by one: a minute."""

Attack = Callable[["Wire"], None]


class Wire:
    """The bytes of one answer, written as they are. `sent` counts them, and `stop` ends it."""

    def __init__(self, handler: BaseHTTPRequestHandler, bmc: HostileBmc) -> None:
        self._handler, self._bmc = handler, bmc
        self.path = handler.path
        self.command = handler.command

    def send(self, data: bytes) -> None:
        """Raises: OSError once the client has gone."""
        if self._bmc.stopped.is_set():
            raise ConnectionAbortedError
        self._handler.wfile.write(data)
        self._handler.wfile.flush()
        self._bmc.sent += len(data)

    def endless(self, piece: bytes) -> None:
        for _ in range(ENDLESS_BYTES // len(piece)):
            self.send(piece)

    def drip(self, piece: bytes = b"x") -> None:
        for _ in range(DRIP_BYTES):
            self.send(piece)
            if self._bmc.stopped.wait(DRIP_SECONDS):
                raise ConnectionAbortedError

    def flood_tickets(self) -> None:
        """TLS session tickets, in place of any byte of an answer."""

        def count(sent: int) -> None:
            if self._bmc.stopped.is_set():
                raise ConnectionAbortedError
            self._bmc.sent += sent

        flood_tickets(self._handler.connection, self._bmc.keys, count)

    def answer(self, body: bytes, *headers: str, status: str = "200 OK") -> None:
        """A whole answer."""
        about = ("Content-Type: application/json", f"Content-Length: {len(body)}", "Connection: close")
        lines = [f"HTTP/1.1 {status}", *about, *headers]
        self.send("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def document(self, document: Any, *headers: str, status: str = "200 OK") -> None:
        self.answer(json.dumps(document).encode(), *headers, status=status)


class HostileBmc:
    """`attacks`: how it answers a method and path, such as `GET /redfish/v1/`; all else as the lab's BMC does."""

    def __init__(self, fake: FakeServer, keys: Path) -> None:
        self.fake = fake
        self.keys = keys
        """Those of its TLS, in a file."""
        prepare(fake.endpoint._tls, keys)
        self.attacks: dict[str, Attack] = {}
        self.sent = 0
        self.asked: list[str] = []
        self.heard: list[dict[str, str]] = []
        """The headers of each request."""
        self.stopped = threading.Event()
        server: Any = fake.endpoint._server
        server.RequestHandlerClass = _Handler
        server.hostile = self

    @property
    def access(self) -> BmcAccess:
        return access_to(self.fake)


# Not pytest-httpserver: an attack writes raw bytes, and all else is answered by the lab's own BMC.
class _Handler(BmcHandler):
    def do_GET(self) -> None:  # noqa: N802 (the name that http.server calls)
        self._attack_or(super().do_GET)

    def do_POST(self) -> None:  # noqa: N802 (the name that http.server calls)
        self._attack_or(super().do_POST)

    def do_DELETE(self) -> None:  # noqa: N802 (the name that http.server calls)
        self._attack_or(super().do_DELETE)

    def _attack_or(self, answer: Callable[[], None]) -> None:
        bmc = cast("HostileBmc", self.server.hostile)  # type: ignore[attr-defined]
        asked = f"{self.command} {self.path}"
        bmc.asked.append(asked)
        bmc.heard.append(dict(self.headers.items()))
        attack = bmc.attacks.get(asked)
        if attack is None:
            answer()
            return
        self.close_connection = True
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        attack(Wire(self, bmc))


def access_to(server: FakeServer) -> BmcAccess:
    return BmcAccess(
        address=server.url,
        username=USERNAME,
        password=Secret(PASSWORD),
        credentials_name="provisioner-system/r01-bmc",
        certificate=server.certificate,
    )


@contextmanager
def hostile_bmc(directory: Path, name: str = "r01-u01") -> Iterator[HostileBmc]:
    with fake_server(directory, name=name) as fake:
        made = HostileBmc(fake, directory / "keys")
        try:
            yield made
        finally:
            made.stopped.set()


@contextmanager
def mute_port() -> Iterator[int]:
    """A port where connections are taken and nothing is said."""
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as silent:
        yield silent.getsockname()[1]
