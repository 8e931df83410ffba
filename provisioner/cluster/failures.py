"""From what the API server answered to this project's errors, in the server's own words.

409                                  Conflict
404                                  NotFound
410                                  Expired (a watch or a page of a list is too old: list again)
429                                  Busy (nothing was taken in), honouring Retry-After
408, 5xx, connection errors          Retryable, honouring Retry-After
403                                  Forbidden
400, 401, 405, 413, 415, 422         Refused
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NoReturn

from provisioner.api.machinery.errors import Conflict, Forbidden, NotFound, Refused, Retryable

MAX_RETRY_AFTER_SECONDS: Final = 300.0

_HINTS: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "renew the credentials in the kubeconfig",
    HTTPStatus.FORBIDDEN: "grant the right with a Role, or use another kubeconfig",
}


# The API server answers a server-side apply of an unknown field or a duplicate list key with HTTP 500.
_MALFORMED_APPLY: Final = "failed to create typed patch object"


class Inapplicable(Refused):
    """A JSON Patch that does not fit the object: a test in it failed, or what it changes is not there."""


class Expired(Retryable):
    """The resourceVersion is older than what the API server remembers (HTTP 410)."""


class Oversized(Retryable):
    """The answer has more bytes than it may have: ask for less."""


class Busy(Retryable):
    """The API server takes nothing in just now (HTTP 429): too much is asked of it, or it has just begun to serve the
    kind. A PodDisruptionBudget that forbids an eviction says the same."""


def raise_failure(status: int, headers: Mapping[str, str], body: bytes, what: str) -> NoReturn:
    """Raise the error for an answer that is not a success. `what` names the request: `GET Server r01-u01`."""
    answer = _status_object(body)
    words = answer.get("message") or body[:500].decode(errors="replace").strip() or HTTPStatus(status).phrase
    message = f"{what}: {words}"
    if status == HTTPStatus.CONFLICT:
        raise Conflict(message, after_seconds=0.1)
    if status == HTTPStatus.GONE:
        raise Expired(message, after_seconds=0.0)
    if status == HTTPStatus.NOT_FOUND:
        raise NotFound(message, hint="create it, or correct the name")
    if status == HTTPStatus.INTERNAL_SERVER_ERROR and _MALFORMED_APPLY in words:
        raise Refused(message, hint="correct the field that the API server names")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        raise Busy(f"{message} (HTTP {status})", after_seconds=_retry_after(headers, answer))
    if status == HTTPStatus.REQUEST_TIMEOUT or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Retryable(f"{message} (HTTP {status})", after_seconds=_retry_after(headers, answer))
    refused = Forbidden if status == HTTPStatus.FORBIDDEN else Refused
    if status == HTTPStatus.UNPROCESSABLE_ENTITY and answer.get("details") == {}:
        refused = Inapplicable  # an object that is invalid, or that a policy refuses, is named in the details
    raise refused(message, hint=_HINTS.get(status, "correct what the API server names"))


def _status_object(body: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(body)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _retry_after(headers: Mapping[str, str], answer: Mapping[str, Any]) -> float:
    details = answer.get("details")
    wanted = headers.get("Retry-After") or (details.get("retryAfterSeconds") if isinstance(details, dict) else None)
    try:
        return min(max(float(wanted or 1.0), 0.0), MAX_RETRY_AFTER_SECONDS)
    except (TypeError, ValueError):
        return 1.0
