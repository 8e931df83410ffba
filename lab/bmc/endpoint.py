"""The HTTPS endpoint of one emulated BMC: where it listens, who may come in, and what is wrong with it at present."""

from __future__ import annotations

import functools
import hmac
import socket
import ssl
import sys
import threading
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from typing import Any, Final, cast

import structlog

from lab.bmc.handler import BmcHandler
from lab.bmc.server_power import ServerPower
from lab.machine.machine import MachineSpec
from provisioner.api.machinery.values import Secret

log = structlog.get_logger()

_READ_SECONDS: Final = 30.0


@dataclass
class Faults:
    """What goes wrong with this BMC at present."""

    delay_seconds: float = 0.0
    unavailable: bool = False
    resets_unavailable: bool = False
    """All else is answered."""
    tokens_refused: int = 0
    """So many of the next requests by a session get 401, however valid its token."""
    answers_lost: list[str] = field(default_factory=list)
    """The next request of each method is carried out, and the connection broken off in place of an answer."""


@dataclass(frozen=True)
class Credentials:
    """User name and password of a BMC."""

    username: str
    password: Secret

    def fit(self, username: object, password: object) -> bool:
        return (
            isinstance(username, str)
            and isinstance(password, str)
            and hmac.compare_digest(username.encode(), self.username.encode())
            and hmac.compare_digest(password.encode(), self.password.reveal().encode())
        )


class BmcEndpoint:
    """Serves one server's BMC at an address until `stop`. Port 0 means a free one."""

    def __init__(
        self,
        spec: MachineSpec,
        power: ServerPower,
        credentials: Credentials,
        *,
        address: str,
        port: int,
        tls: ssl.SSLContext,
    ) -> None:
        self.spec = spec
        self.power = power
        self.credentials = credentials
        self.faults = Faults()
        self.sessions: dict[str, str] = {}
        """Token of each open session, and its id."""
        self._bind = (address, port)
        self._tls = tls
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """Base URL, once started."""
        if self._server is None:
            raise RuntimeError("the BMC endpoint was not started")
        address, port = self._server.server_address[:2]
        return f"https://{address!s}:{port}"

    def start(self) -> None:
        self._server = _Server(self._bind, self, self._tls)
        serve = functools.partial(self._server.serve_forever, poll_interval=0.05)
        threading.Thread(target=serve, name=f"bmc {self.spec.name}", daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, bind: tuple[str, int], endpoint: BmcEndpoint, tls: ssl.SSLContext) -> None:
        self.endpoint = endpoint
        self._tls = tls
        super().__init__(bind, BmcHandler)

    def finish_request(self, request: Any, client_address: Any) -> None:
        # The handshake happens here, in the connection's own thread: a client that connects and says nothing must not
        # hold up the others.
        request.settimeout(_READ_SECONDS)
        with self._tls.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(cast("socket.socket", wrapped), client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("BMC connection was broken off", server=self.endpoint.spec.name, error=repr(sys.exc_info()[1]))
