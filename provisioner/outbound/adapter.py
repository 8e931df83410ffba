"""`requests` with calls that end: mount one of these adapters on a session."""

from __future__ import annotations

from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from provisioner.outbound.deadline import OutboundFailed, TooLarge, TooSlow, bounded_call
from provisioner.outbound.sockets import bound, read_body


class AnswerTooSlow(requests.exceptions.ReadTimeout, TooSlow):
    """TooSlow, as code that only knows `requests` expects it."""


class AnswerTooLarge(requests.exceptions.ConnectionError, TooLarge):
    """TooLarge, as code that only knows `requests` expects it."""


class Redirected(requests.exceptions.TooManyRedirects, OutboundFailed):
    """The backend sent the caller, with its credentials, elsewhere."""


class StreamedAdapter(HTTPAdapter):
    """For answers that are too large to be held: requests are made with `stream`, inside a `bounded_call` of the
    caller's own, and read by `sockets.read_parts`."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        bound(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        pools = super().proxy_manager_for(proxy, **kwargs)
        bound(pools)
        return pools

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        request.headers["Accept-Encoding"] = "identity"
        return super().send(request, *args, **kwargs)


class BoundedAdapter(StreamedAdapter):
    """Each request with its whole answer takes at most `seconds` and `max_bytes`, and is read before it is returned.

    The session's own time-outs bound connecting and each silence within that. `backend` is a name for people.
    """

    def __init__(self, backend: str, *, seconds: float, max_bytes: int, redirects: bool = False, **kwargs: Any) -> None:
        self._backend = backend
        self._seconds, self._max_bytes = seconds, max_bytes
        self._redirects = redirects
        super().__init__(**kwargs)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Raises: AnswerTooSlow, AnswerTooLarge, Redirected; the errors of `requests`."""
        kwargs["stream"] = True
        try:
            with bounded_call(self._backend, seconds=self._seconds, max_bytes=self._max_bytes):
                response = super().send(request, *args, **kwargs)
                # What Session.send would read after the call's end, and unbounded.
                response._content = read_body(response.raw)  # noqa: SLF001 - requests has no other way to give a body
                response._content_consumed = True  # noqa: SLF001
        except TooSlow as error:
            slow = AnswerTooSlow(str(error), request=request)
            slow.received, slow.allowed_seconds = error.received, error.allowed_seconds
            raise slow from error
        except TooLarge as error:
            raise AnswerTooLarge(str(error), request=request) from error
        except urllib3.exceptions.HTTPError as error:
            # Of the body; those of the head HTTPAdapter has put into its own words.
            raise requests.exceptions.ConnectionError(error, request=request) from error
        if response.is_redirect and not self._redirects:
            raise Redirected(
                f"{self._backend} redirects to {response.headers['location'][:200]!r}, expected an answer of its own",
                request=request,
            )
        return response
