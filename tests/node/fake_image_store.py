"""A store of images over real HTTP, whose answers can be cut, altered, or without ranges."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from pytest_httpserver import URI_DEFAULT
from werkzeug import Request, Response

from tests.http_peer import HttpPeer, target

Fault = Callable[[str, bytes], bytes]
"""Path and body in; the bytes that are sent instead, with the Content-Length of the right ones."""


class FakeImageStore(HttpPeer):
    """Serves `files` by path. `asked`: paths with the range asked for."""

    def __init__(self, files: dict[str, bytes], *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls=tls)
        self.files = files
        self.ranges = True
        self.asked: list[tuple[str, str]] = []
        self.fault: Fault = lambda _, body: body
        self.expect_request(URI_DEFAULT).respond_with_handler(self._answer)

    def _answer(self, request: Request) -> Response:
        path = target(request)
        self.asked.append((path, request.headers.get("Range", "")))
        body = self.files.get(path)
        if body is None:
            return Response(status=404)
        response = Response(body)
        response.make_conditional(request, accept_ranges=self.ranges, complete_length=len(body))
        response.response = [self.fault(path, b"".join(response.iter_encoded()))]
        return response
