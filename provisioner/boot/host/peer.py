"""Who asks? Our peer is nginx on a unix socket: it says the address, and it alone may."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any, Final

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]

_CLAIMS: Final = (
    "HTTP_X_REAL_IP",
    "HTTP_X_FORWARDED_FOR",
    "HTTP_X_FORWARDED_HOST",
    "HTTP_X_FORWARDED_PORT",
    "HTTP_X_FORWARDED_PREFIX",
    "HTTP_X_FORWARDED_PROTO",
    "HTTP_FORWARDED",
)


class RealPeer:
    """WSGI middleware: REMOTE_ADDR becomes the client's address, and what clients claim about it disappears.

    `X-Real-IP` counts only from a unix socket, which only nginx may open and where nginx overwrites it. From a TCP peer
    nothing but its address counts.
    """

    def __init__(self, application: Application) -> None:
        self._application = application

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        claims = {name: environ.pop(name) for name in _CLAIMS if name in environ}
        if not _is_address(environ.get("REMOTE_ADDR", "")):
            address = claims.get("HTTP_X_REAL_IP", "")
            if not _is_address(address):
                start_response("400 Bad Request", [("Content-Type", "text/plain"), ("Content-Length", "0")])
                return []
            environ["REMOTE_ADDR"] = address
            if claims.get("HTTP_X_FORWARDED_PROTO") == "https":
                environ["wsgi.url_scheme"] = "https"
        return self._application(environ, start_response)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
