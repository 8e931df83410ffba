"""From what a registry answered to this project's errors, in the registry's own words.

404                      NotFound
401, 403                 Forbidden
408, 425, 429, 5xx       Retryable, honouring Retry-After
405 and all others       Refused
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NoReturn

from provisioner.api.machinery.errors import Forbidden, NotFound, Refused, Retryable

MAX_RETRY_AFTER_SECONDS: Final = 3600.0
_LATER: Final = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
_WORDS_LENGTH: Final = 300


class MethodNotAllowed(Refused):
    """The registry knows no such call, or was configured without it (HTTP 405, or the code UNSUPPORTED)."""


def raise_failure(status: int, headers: Mapping[str, str], body: bytes, what: str) -> NoReturn:
    """`what` names the call and the registry: `oci://… did not give blob sha256:…`."""
    code, words = _words(body)
    message = f"{what}: HTTP {status}{f', {words}' if words else ''}"
    if status == HTTPStatus.NOT_FOUND:
        raise NotFound(message, hint="push the image (provisioner image push), or correct the address")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        raise Forbidden(
            message, hint="give a name and password that may do it: --registry-config FILE, as docker login writes it"
        )
    if status in _LATER or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Retryable(message, after_seconds=retry_after(headers))
    if status == HTTPStatus.METHOD_NOT_ALLOWED or code == "UNSUPPORTED":
        raise MethodNotAllowed(message, hint="allow it in the registry's configuration, or do it there")
    raise Refused(message, hint="is it a registry of the OCI distribution specification, and has it room?")


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that the answer asks to wait for; 0 if it does not say, or says a date, which needs a clock in common."""
    try:
        seconds = float(headers.get("Retry-After", "0"))
    except ValueError:
        return 0.0
    return 0.0 if math.isnan(seconds) else min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _words(body: bytes) -> tuple[str, str]:
    """Code and message of the first error; what is no error of the specification is left out: it may be a page."""
    try:
        first = json.loads(body)["errors"][0]
        code, message = str(first.get("code", "")), str(first.get("message", ""))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return "", ""
    text = f"{code}: {message}" if message else code
    return code, "".join(letter if letter.isprintable() else "?" for letter in text[:_WORDS_LENGTH])
