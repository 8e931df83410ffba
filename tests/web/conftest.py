"""One browser for all tests of pages, and pages of a made-up fleet that is served for real."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from playwright.sync_api import Browser, Page

from provisioner.cli.service.web_words import WordsOfCommands
from provisioner.web.caches import WebCaches
from provisioner.web.pages.service import Listening, WebService
from tests.web.browser import Quiet, a_browser
from tests.web.fake_source import FakeSource, fake_caches
from tests.web.made_up_fleet import MadeUpFleet, make_fleet

SERVERS = 48


@dataclass
class Served:
    """Pages over HTTP on a loopback address, of copies that the test changes."""

    caches: WebCaches
    service: WebService
    port: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def source(self, kind: str) -> FakeSource:
        return cast(FakeSource, getattr(self.caches, kind))

    def body(self, kind: str, name: str) -> dict[str, Any]:
        found = self.source(kind).get(name)
        assert found is not None
        return found

    def start(self) -> None:
        server = self.service.bind()
        self.port = int(server.effective_port)
        self._thread = threading.Thread(target=self.service.run, args=(server, self._stop), daemon=True)
        self._thread.start()
        while not self.service.follower.is_caught_up:
            time.sleep(0.02)

    def stop(self) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(30)


def clock() -> datetime:
    return datetime.now(UTC)


def served(fleet: MadeUpFleet, *, port: int = 0, viewers: int = 20, now: Callable[[], datetime] = clock) -> Served:
    """Not started yet."""
    return of_caches(
        fake_caches(
            racks=fleet.racks, servers=fleet.servers, pools=fleet.pools, images=fleet.images,
            maintenances=fleet.maintenances, nodes=fleet.nodes,
        ),
        port=port, viewers=viewers, now=now,
    )  # fmt: skip


def of_caches(caches: WebCaches, *, port: int = 0, viewers: int = 20, now: Callable[[], datetime] = clock) -> Served:
    listening = Listening(
        address="127.0.0.1", port=port, with_tokens=False, audience=None, hosts=("127.0.0.1",), viewers=viewers
    )
    words = WordsOfCommands(caches, now=now)
    service = WebService(caches, words, listening, cluster=None, now=now, monotonic=time.monotonic)
    return Served(caches, service)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with a_browser() as found:
        yield found


@pytest.fixture
def site() -> Iterator[Served]:
    found = served(make_fleet(SERVERS, now=datetime.now(UTC)))
    found.start()
    yield found
    found.stop()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new person's page; at the end nothing may have gone wrong in it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    quiet = Quiet(opened)
    opened.quiet = quiet  # type: ignore[attr-defined]
    yield opened
    context.close()
    assert quiet.said == []
