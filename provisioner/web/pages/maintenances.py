"""`/maintenances` and `/maintenances/NAME`."""

from __future__ import annotations

from typing import Final

from flask import Blueprint, Response, request

from provisioner.api import Maintenance
from provisioner.api.nodes.maintenance import FINAL_PHASES
from provisioner.cluster.source import look_up, phase_of
from provisioner.web.caches import readable
from provisioner.web.pages.site import Site

SHOWN: Final = 300
WHICH: Final = ("open", "over", "all")


def maintenance_pages(site: Site) -> Blueprint:
    pages = Blueprint("maintenances", __name__)

    @pages.get("/maintenances")
    def maintenances() -> str:
        asked = request.args.get("which", "")
        which = asked if asked in WHICH else "open"
        bodies = [
            body
            for body in site.caches.maintenances.items()
            if which == "all" or (phase_of(body) in FINAL_PHASES) == (which == "over")
        ]
        bodies.sort(key=lambda body: (body["metadata"].get("creationTimestamp", ""), body["metadata"]["name"]))
        newest = readable(Maintenance, bodies[: -SHOWN - 1 : -1])
        return site.render("maintenances.html", which=which, total=len(bodies), maintenances=newest)

    @pages.get("/maintenances/<name>")
    def maintenance(name: str) -> str | Response:
        found = look_up(Maintenance, site.caches.maintenances, name)
        if found is None:
            return site.missing(f"There is no Maintenance {name}.")
        attempts = list(found.status.attempts)
        if found.status.reboot is not None and all(each.id != found.status.reboot.id for each in attempts):
            attempts.append(found.status.reboot)
        return site.render("maintenance.html", m=found, attempts=attempts)

    return pages
