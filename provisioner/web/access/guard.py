"""Before every answer: is it for us, from our own page, and from somebody who may see it? And after it: the headers by
which a browser holds the page to what it is.

    Host            against DNS rebinding, where no token is asked for: a foreign name that resolves to this address
    Sec-Fetch-Site  against other sites that have the browser fetch from here, with its cookie
    token           from the header Authorization, which an authenticating proxy sets, else from the cookie
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit

from flask import Flask, Response, g, redirect, request

from provisioner.api.machinery.errors import Retryable
from provisioner.web.access.gate import Gate, NotAllowed, UnknownToken, Viewer

COOKIE: Final = "__Host-provisioner-token"
LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
HEALTH: Final = frozenset(("health.healthz", "health.readyz"))
OPEN_TO_ALL: Final = HEALTH | {"static", "session.show", "session.log_in", "session.log_out"}
"""Endpoints that tell nothing of the fleet."""
HEADERS: Final = {
    # Nothing inline, nothing from elsewhere; no script makes markup of a string but by the one policy of live.js.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types provisioner",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_PORT: Final = re.compile(r":\d{1,5}$")


@dataclass(frozen=True, kw_only=True)
class Guard:
    """gate: None where everybody who reaches the port may look. hosts: names that are answered to; empty: any."""

    gate: Gate | None
    hosts: Collection[str]

    def watch_over(self, app: Flask) -> None:
        """Every request of `app` passes here first."""
        app.before_request(self.check)
        app.after_request(set_headers)

    def check(self) -> Response | None:
        """None if the request may be answered; else what is answered instead."""
        if request.endpoint in HEALTH:
            return None  # a kubelet asks by the pod's address
        if self.hosts and _PORT.sub("", request.host).lower() not in self.hosts:
            return plain_answer(421, "this name is not answered to; name it with --host")
        if is_foreign():
            return plain_answer(403, "another site asked for this")
        if request.endpoint in OPEN_TO_ALL or request.endpoint is None:
            return None
        if self.gate is None:
            g.viewer = None
            return None
        sent = sent_token()
        if sent is None:
            return self._ask_for_token()
        try:
            g.viewer = self.gate.admit(sent, request.remote_addr or "")
        except UnknownToken as error:
            return self._ask_for_token(str(error))
        except NotAllowed as error:
            return plain_answer(403, str(error))
        except Retryable as error:
            return busy(str(error), error.after_seconds)
        return None

    def admits(self, token: str | None, source: str) -> bool:
        """Whether who is being answered for a long time may still be."""
        if self.gate is None:
            return True
        try:
            return token is not None and isinstance(self.gate.admit(token, source), Viewer)
        except (UnknownToken, NotAllowed):
            return False
        except Retryable:
            return True  # an API server that is away takes nobody's rights away; asked again in a minute

    def _ask_for_token(self, why: str = "") -> Response:
        is_page = request.method == "GET" and "text/html" in request.headers.get("Accept", "")
        if is_page and "Authorization" not in request.headers:
            return redirect(f"/login?next={quote(request.full_path.rstrip('?'))}", 303)  # type: ignore[return-value]
        answer = plain_answer(401, why or "a bearer token is needed: kubectl create token")
        answer.headers["WWW-Authenticate"] = 'Bearer realm="provisioner"'
        return answer


def sent_token() -> str | None:
    """The proxy's word counts before the cookie: who is logged in there is not somebody else here."""
    header = request.headers.get("Authorization")
    if header is not None:
        scheme, _, token = header.partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""
    return request.cookies.get(COOKIE)


def is_foreign() -> bool:
    """Whether the browser says that another site's page asks, and not a person who followed a link."""
    site = request.headers.get("Sec-Fetch-Site")
    if request.method not in ("GET", "HEAD"):
        origin = request.headers.get("Origin")
        if site is None and origin is not None:
            return urlsplit(origin).netloc != request.host
        return site not in (None, "same-origin")
    if site in (None, "same-origin", "none"):
        return False
    return request.headers.get("Sec-Fetch-Dest") != "document"


def set_headers(answer: Response) -> Response:
    answer.headers.update(HEADERS)
    answer.headers.setdefault("Cache-Control", "no-store")
    return answer


def plain_answer(status: int, words: str) -> Response:
    return Response(words + "\n", status=status, mimetype="text/plain")


def busy(words: str, after_seconds: float) -> Response:
    answer = plain_answer(503, words)
    answer.headers["Retry-After"] = str(max(1, round(after_seconds)))
    return answer
