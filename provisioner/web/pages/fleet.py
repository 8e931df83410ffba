"""`/` and `/racks/NAME`: the fleet, and one rack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flask import Blueprint, Response, current_app, request
from markupsafe import Markup

from provisioner.api import Rack
from provisioner.cluster.source import look_up
from provisioner.web.fleet import FleetFilter, WaitingGroup, in_place, waiting_groups
from provisioner.web.pages.site import Site
from provisioner.web.row import ServerRow
from provisioner.web.shared import Shared
from provisioner.web.states import STATES

MOST_SERVERS: Final = 20_000
"""On one page."""
MOST_GROUPS: Final = 30
USUAL_UNITS: Final = 42
TEXT_LENGTH: Final = 200


def fleet_pages(site: Site) -> Blueprint:
    pages = Blueprint("fleet", __name__)
    elevations = Elevations(site)
    groups: Shared[tuple[list[WaitingGroup], int]] = Shared(1.0, site.monotonic)

    @pages.get("/")
    def fleet() -> str:
        wanted = FleetFilter(
            **{key: request.args.get(name, "")[:TEXT_LENGTH].strip() for key, name in WANTED.items()},
        )
        rows = site.fleet.rows()
        only_parts = "parts" in request.args

        def look() -> tuple[list[WaitingGroup], int]:
            matching = [row for row in rows if wanted.matches(row)]
            return waiting_groups(matching), len(matching)

        waits, matching = groups.get(wanted, look)
        shown, racks = (0, []) if only_parts else elevations.of(wanted)
        return site.render(
            "fleet.html",
            wanted=wanted,
            counts=site.fleet.counts(),
            pools=sorted({row.pool for row in rows if row.pool}),
            groups=waits[:MOST_GROUPS],
            more_groups=max(0, len(waits) - MOST_GROUPS),
            matching=matching,
            racks=racks,
            shown=shown,
            total=len(rows),
            shown_limit=MOST_SERVERS,
            cut=shown > MOST_SERVERS,
        )

    @pages.get("/racks/<name>")
    def rack(name: str) -> str | Response:
        rows, found = in_place(site.fleet.of_rack(name)), look_up(Rack, site.caches.racks, name)
        if found is None and not rows:
            return site.missing(f"There is no Rack {name}, and no server stands in one of that name.")
        cards: dict[str, list[ServerRow]] = {}
        names = {row.name for row in rows}
        for row in rows:
            if row.host in names:
                cards.setdefault(str(row.host), []).append(row)
        own = [row for row in rows if row.host not in names]
        return site.render(
            "rack.html",
            name=name,
            rack=found,
            rows=rows,
            placed=[row for row in own if row.unit is not None],
            unplaced=[row for row in own if row.unit is None],
            cards=cards,
            tall=any((row.unit or 0) > USUAL_UNITS for row in rows),
        )

    return pages


WANTED: Final = {"text": "q", "state": "state", "pool": "pool", "rack": "rack", "reason": "reason"}
"""Fields by the parameter of the address."""


class Elevations:
    """Racks as markup: that of a rack in which nothing changed is kept. Usable from several threads."""

    def __init__(self, site: Site) -> None:
        self._fleet = site.fleet
        self._kept: dict[str, tuple[int, int, Markup]] = {}

    def of(self, wanted: FleetFilter) -> tuple[int, list[Markup]]:
        """How many servers match, and the racks in which they stand, by name, as far as the page holds them."""
        draw = current_app.jinja_env.get_template("rack_fragment.html").render
        shown, fragments = 0, []
        for rack in self._fleet.racks():
            count, fragment = self._whole(rack, draw) if wanted.is_everything else self._part(rack, wanted, draw)
            if count and shown < MOST_SERVERS:
                fragments.append(fragment)
            shown += count
        return shown, fragments

    def _whole(self, rack: str, draw: Callable[..., str]) -> tuple[int, Markup]:
        version = self._fleet.version_of_rack(rack)
        kept = self._kept.get(rack)
        if kept is None or kept[0] != version:
            rows = in_place(self._fleet.of_rack(rack))
            kept = self._kept[rack] = (version, len(rows), Markup(draw(name=rack, rows=rows, states=STATES)))  # noqa: S704 - escaped
        return kept[1], kept[2]

    def _part(self, rack: str, wanted: FleetFilter, draw: Callable[..., str]) -> tuple[int, Markup]:
        rows = [row for row in in_place(self._fleet.of_rack(rack)) if wanted.matches(row)]
        if not rows:
            return 0, Markup("")
        return len(rows), Markup(draw(name=rack, rows=rows, states=STATES))  # noqa: S704 - escaped
