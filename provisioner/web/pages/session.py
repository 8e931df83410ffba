"""Logging in by a token that is pasted, for who comes without an authenticating proxy; `/healthz` and `/readyz`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flask import Blueprint, Response, redirect, render_template, request

from provisioner.api.machinery.errors import NeedsHuman, Retryable
from provisioner.web.access.gate import Gate
from provisioner.web.access.guard import COOKIE, busy, plain_answer
from provisioner.web.pages.site import asset_version

SESSION_SECONDS: Final = 8 * 3600
"""The token may be over before; then it is asked for again."""
MOST_OF_A_COOKIE: Final = 4000
"""Browsers drop a longer one without a word."""


def session_pages(gate: Gate | None, audience: str | None) -> Blueprint:
    """gate: None where nobody logs in."""
    pages = Blueprint("session", __name__)

    def form(status: int, wrong: str = "") -> Response:
        page = render_template(
            "login.html",
            wrong=wrong,
            next=local(request.values.get("next", "/")),
            version=asset_version(),
            audience=audience,
        )
        return Response(page, status=status)

    @pages.get("/login")
    def show() -> Response:
        return form(200) if gate is not None else redirect("/", 303)  # type: ignore[return-value]

    @pages.post("/login")
    def log_in() -> Response:
        if gate is None:
            return plain_answer(404, "nobody logs in here")
        token = request.form.get("token", "").strip()
        if len(token) > MOST_OF_A_COOKIE:
            return form(400, f"this token has more than {MOST_OF_A_COOKIE} characters, which no cookie holds")
        try:
            gate.admit(token, request.remote_addr or "")
        except NeedsHuman as error:
            return form(403, str(error))
        except Retryable as error:
            return busy(str(error), error.after_seconds)
        answer: Response = redirect(local(request.form.get("next", "/")), 303)  # type: ignore[assignment]
        # Lax, for a link from a chat to find who is logged in; nothing here is changed by a request.
        answer.set_cookie(COOKIE, token, max_age=SESSION_SECONDS, secure=True, httponly=True, samesite="Lax")
        return answer

    @pages.post("/logout")
    def log_out() -> Response:
        answer: Response = redirect("/login", 303)  # type: ignore[assignment]
        answer.delete_cookie(COOKIE, secure=True, httponly=True, samesite="Lax")
        return answer

    return pages


def health_pages(is_ready: Callable[[], bool]) -> Blueprint:
    pages = Blueprint("health", __name__)

    @pages.get("/healthz")
    def healthz() -> Response:
        return plain_answer(200, "alive")

    @pages.get("/readyz")
    def readyz() -> Response:
        return plain_answer(200, "ready") if is_ready() else plain_answer(503, "the fleet is not known yet")

    return pages


def local(path: str) -> str:
    """`path` if it is one of this site; else the first page: a form sends nobody elsewhere."""
    ok = path.startswith("/") and not path.startswith("//") and path.isprintable() and "\\" not in path
    return path if ok and len(path) < 1000 else "/"
