"""pytest-httpserver as an HTTP peer on loopback, with or without TLS."""

from __future__ import annotations

import ssl

from pytest_httpserver import HTTPServer
from werkzeug import Request


class HttpPeer(HTTPServer):
    """Handles requests in parallel and stops within 10 ms. Like pytest-httpserver's own, it closes every connection
    after its answer, and keeps all requests and answers in `log`."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(host, port, tls, threaded=True)

    def thread_target(self) -> None:
        assert self.server is not None
        self.server.serve_forever(poll_interval=0.01)  # stop() waits this long; the default is 0.5 s

    @property
    def url(self) -> str:
        """Without a path."""
        return self.url_for("/").removesuffix("/")


def target(request: Request) -> str:
    """Path and query as they were sent."""
    return str(request.environ["RAW_URI"])
