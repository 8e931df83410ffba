"""Answers that are too large to be held: read part by part, inside a `bounded_call` of the caller's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter

from provisioner.outbound.deadline import current_call
from provisioner.outbound.sockets import bound

_PART_BYTES: Final = 64 * 1024


class StreamedAdapter(HTTPAdapter):
    """To be mounted on a session whose requests are made with `stream`."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        bound(self.poolmanager)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        request.headers["Accept-Encoding"] = "identity"
        return super().send(request, *args, **kwargs)


def read_parts(response: requests.Response) -> Iterator[bytes]:
    """The body as it comes. Raises: TooSlow, TooLarge; urllib3's errors; see `sockets.read_body` for a coding."""
    call = current_call()
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if call is not None and coding not in ("", "identity"):
        raise call.refuse(
            f"answered in Content-Encoding {coding[:40]!r}, which was not asked for; expected plain bytes"
        )
    while part := response.raw.read(_PART_BYTES, decode_content=False):
        yield part
