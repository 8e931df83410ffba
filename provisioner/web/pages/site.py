"""What all pages are made from, and how they are rendered: everything that is put into a page is text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from flask import Response, g, render_template
from markupsafe import Markup

from provisioner.api.machinery.meta import read_time, rfc3339
from provisioner.api.machinery.wording import ago, plain, quantity, span
from provisioner.cluster.leadership import NoLeader
from provisioner.web.access.guard import Guard
from provisioner.web.broadcast import Broadcast
from provisioner.web.caches import WebCaches
from provisioner.web.fleet import Fleet
from provisioner.web.medians import UsualBoot, usual_boot
from provisioner.web.server_events import EventReader
from provisioner.web.shared import Shared
from provisioner.web.states import STATES
from provisioner.web.telling import PoolTold, Words
from provisioner.web.viewers import Viewers

HERE: Final = Path(__file__).parents[1]
USUAL_SECONDS: Final = 15.0
POOL_SECONDS: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class Site:
    """events: None where they are not asked for. no_leader: groups that nobody leads; None if none, or if not known.
    monotonic: for what is kept for a while; now: for what is told."""

    caches: WebCaches
    fleet: Fleet
    broadcast: Broadcast
    words: Words
    events: EventReader | None
    no_leader: Callable[[], NoLeader | None]
    guard: Guard
    viewers: Viewers
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    usual: Shared[UsualBoot | None]
    pools: Shared[PoolTold | None]

    def usual_boot(self, pool: str, *, by_agent: bool) -> UsualBoot | None:
        """What a boot of that kind usually takes in the pool."""
        rows = (row for row in self.fleet.rows() if row.pool == pool)
        return self.usual.get((pool, by_agent), lambda: usual_boot(rows, by_agent=by_agent))

    def pool(self, name: str) -> PoolTold | None:
        """The pool as its rollout is told; None if there is none of that name."""
        return self.pools.get(name, lambda: self.words.of_pool(name))

    def render(self, template: str, **parts: Any) -> str:
        """The page. `g.live_id` was taken before anything was read."""
        now = self.now()
        return render_template(
            template,
            states=STATES,
            version=asset_version(),
            live_id=g.live_id,
            now_iso=rfc3339(now),
            now_words=now.strftime("%H:%M:%S"),
            no_leader=self.no_leader(),
            **parts,
        )

    def missing(self, words: str) -> Response:
        return Response(self.render("missing.html", words=words), status=404)


def filters(now: Callable[[], datetime]) -> dict[str, Callable[..., str]]:
    """What templates make of values."""
    return {
        "ago_words": lambda text: _ago(text, now()),
        "seconds_words": lambda seconds: f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s",
        "length_words": span,
        "quantity": quantity,
    }


def _ago(text: object, now: datetime) -> str:
    moment = read_time(text)
    if moment is None:
        return str(text)
    return f"{ago(moment, now)} ago" if moment <= now else f"in {ago(moment, now)}"


def as_text(value: Any) -> Any:
    """What becomes of every value before it is escaped: characters that show nothing are shown as such."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def asset_version() -> str:
    """Another one for every change of a script or sheet, so that browsers may keep them."""
    digest = hashlib.sha256()
    for path in sorted((HERE / "static").iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
