"""`/servers/NAME`: one server, its boot beside what is usual, and why it is as it is."""

from __future__ import annotations

from flask import Blueprint, Response

from provisioner.api import Server
from provisioner.api.nodes.maintenance import AGENT_METHODS
from provisioner.cluster.source import look_up
from provisioner.web.boot_chart import boot_chart
from provisioner.web.pages.site import Site
from provisioner.web.row import row_of
from provisioner.web.server_events import shown_events


def server_pages(site: Site) -> Blueprint:
    pages = Blueprint("server", __name__)

    @pages.get("/servers/<name>")
    def server(name: str) -> str | Response:
        body, found = site.caches.servers.get(name), look_up(Server, site.caches.servers, name)
        if body is None or found is None:
            return site.missing(f"There is no Server {name}.")
        row, order = row_of(body, site.caches.holding(name)), found.status.order
        events = site.events.of(name) if site.events is not None else None
        usual = site.usual_boot(row.pool, by_agent=order is not None and order.method in AGENT_METHODS)
        return site.render(
            "server.html",
            row=row,
            server=found,
            status=found.status,
            told=site.words.of_server(name, events, site.no_leader()),
            chart=boot_chart(found.status, usual, site.now()),
            cards=[each for each in site.fleet.of_rack(row.rack) if each.host == name],
            maintenances=site.caches.maintenances_of(name)[::-1],
            events=shown_events(events),
        )

    return pages
