"""`/events`: server-sent events, of the fleet or of one topic."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from flask import Blueprint, Response, request

from provisioner.web.access.guard import busy, plain_answer, sent_token
from provisioner.web.pages.site import Site
from provisioner.web.viewers import TooMany

CHECKS: Final = 30
"""After so many minutes the browser connects anew."""
_TOPIC: Final = re.compile(r"(servers|racks|pools|maintenances)(/[a-z0-9.-]{1,253})?")


def live_pages(site: Site) -> Blueprint:
    pages = Blueprint("live", __name__)

    @pages.get("/events")
    def events() -> Response:
        topic = request.args.get("of") or None
        if topic is not None and not _TOPIC.fullmatch(topic):
            return plain_answer(400, "of= names no page that changes")
        token, source = sent_token(), request.remote_addr or ""
        who = hashlib.sha256(token.encode()).hexdigest() if token is not None else source
        try:
            site.viewers.enter(who)
        except TooMany as error:
            return busy(str(error), 30)
        after = request.headers.get("Last-Event-ID") or request.args.get("after")
        frames = site.broadcast.follow(after, topic, clock=site.monotonic, goes_on=_goes_on(site, token, source))
        answer = Response(_Stream(site, who, frames), mimetype="text/event-stream")
        answer.headers["X-Accel-Buffering"] = "no"
        return answer

    return pages


def _goes_on(site: Site, token: str | None, source: str) -> Callable[[], bool]:
    """Whether who follows still may, for half an hour at most."""
    asked = count(1)
    return lambda: next(asked) < CHECKS and site.guard.admits(token, source)


class _Stream:
    """An iterator whose end is counted, also where the client goes before the first frame."""

    def __init__(self, site: Site, who: str, frames: Iterator[bytes]) -> None:
        self._site, self._who, self._frames = site, who, frames
        self._open = True

    def __iter__(self) -> Iterator[bytes]:
        return self._frames

    def close(self) -> None:
        if self._open:
            self._open = False
            self._site.viewers.leave(self._who)
