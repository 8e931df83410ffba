"""`/pools` and `/pools/NAME`: NodePools, and how far each is on its way to another image."""

from __future__ import annotations

from typing import Final

from flask import Blueprint, Response

from provisioner.api import NodePool
from provisioner.web.caches import readable
from provisioner.web.pages.site import Site
from provisioner.web.telling import PoolTold

SHOWN_SERVERS: Final = 200
WIDTH: Final = 1000


def pool_pages(site: Site) -> Blueprint:
    pages = Blueprint("pools", __name__)

    @pages.get("/pools")
    def pools() -> str:
        found = sorted(readable(NodePool, site.caches.pools.items()), key=lambda pool: pool.name)
        return site.render("pools.html", pools=found)

    @pages.get("/pools/<name>")
    def pool(name: str) -> str | Response:
        view = site.pool(name)
        if view is None:
            return site.missing(f"There is no NodePool {name}.")
        return site.render(
            "pool.html",
            name=name,
            view=view,
            members=view.members[:SHOWN_SERVERS],
            more=max(0, len(view.members) - SHOWN_SERVERS),
            bars=bars(view),
            bar_words=", ".join(f"{count} {word}" for _, word, _, count in view.counts),
            usual=site.usual_boot(name, by_agent=False),
        )

    return pages


def bars(view: PoolTold) -> list[tuple[str, float, float]]:
    """The pool as a bar: class, beginning and width of each part. Pure."""
    total = sum(count for _, _, _, count in view.counts)
    parts, begin = [], 0.0
    for key, _, _, count in view.counts:
        width = count / total * WIDTH
        parts.append((f"r-{key}", round(begin, 1), round(width, 1)))
        begin += width
    return parts
