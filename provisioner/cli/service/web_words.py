"""What `provisioner web` says of servers and pools: the words of `kubectl provision why` and `rollout status`, from the
copies that the pages are made of. Wiring between the page and the commands, which do not know each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from provisioner.api import Image, NodePool, Server
from provisioner.api.machinery.codec import decode
from provisioner.cli.rollout.pool_view import PoolView
from provisioner.cli.rollout.screen import LOOKS, ORDER, count_looks, headline, sections, server_waits, state_of
from provisioner.cli.why.headline import headline as headline_of_server
from provisioner.cli.why.screen import sections as sections_of_server
from provisioner.cli.why.subject import ServerSubject
from provisioner.cluster.leadership import NoLeader
from provisioner.cluster.recent_events import RecentEvents
from provisioner.cluster.source import look_up
from provisioner.rollout.borrowed import lending_of
from provisioner.rollout.members import is_member, order_of, retried_moment
from provisioner.rollout.standing import MemberFacts, judge_standing, target_of
from provisioner.rules.nodes import read_node
from provisioner.rules.pool_of_server import current_pool_name
from provisioner.web.caches import WebCaches, readable
from provisioner.web.telling import PoolMember, PoolTold, StatusText

SHOWN_ELSEWHERE = frozenset(("events UTC",))
"""Sections that the page has in a form of its own."""


class WordsOfCommands:
    """Pure but for the copies."""

    def __init__(self, caches: WebCaches, *, now: Callable[[], datetime]) -> None:
        self._caches, self._now = caches, now
        self._judges: dict[str, _Judge] = {}

    def of_server(self, name: str, events: RecentEvents | None, no_leader: NoLeader | None) -> StatusText | None:
        """None if there is no such Server."""
        server = look_up(Server, self._caches.servers, name)
        if server is None:
            return None
        pool = look_up(NodePool, self._caches.pools, current_pool_name(server))
        subject = ServerSubject(
            server=server,
            node=self._caches.nodes.get(name),
            pool=pool,
            image=look_up(Image, self._caches.images, pool.spec.image_ref) if pool is not None else None,
            maintenances=self._caches.maintenances_of(name),
            events=events,
            now=self._now(),
            no_leader=no_leader,
        )
        told = ((label, tuple(entries)) for label, entries in sections_of_server(subject))
        kept = tuple((label, entries) for label, entries in told if entries and label not in SHOWN_ELSEWHERE)
        return StatusText(headline_of_server(subject), kept)

    def of_pool(self, name: str) -> PoolTold | None:
        """None if there is no such NodePool."""
        view = self._view(name)
        if view is None:
            return None
        counts = count_looks(view.standings.values())
        ordered = sorted(view.standings.values(), key=lambda standing: ORDER.index(state_of(standing)))
        told = ((label, tuple(entries)) for label, entries in sections(view))
        return PoolTold(
            told=StatusText(headline(view), tuple((label, entries) for label, entries in told if entries)),
            counts=tuple(
                (state, look.word if counts[state] == 1 else look.many, look.mark, counts[state])
                for state, look in LOOKS.items()
                if counts.get(state)
            ),
            members=[
                PoolMember(
                    name=standing.server.name,
                    state=state_of(standing),
                    word=LOOKS[state_of(standing)].word,
                    mark=LOOKS[state_of(standing)].mark,
                    image=standing.server.status.image_ref or "",
                    assigned=standing.server.status.assigned_image_ref or "",
                    waits=server_waits(view, standing),
                )
                for standing in ordered
            ],
        )

    def _view(self, name: str) -> PoolView | None:
        pool = look_up(NodePool, self._caches.pools, name)
        if pool is None:
            return None
        now, image = self._now(), look_up(Image, self._caches.images, pool.spec.image_ref)
        lending = lending_of(readable(NodePool, self._caches.pools.items()), now)
        servers = [body for body in self._caches.servers.items() if is_member(body, name, lending)]
        judge = self._judges.setdefault(name, _Judge(self._caches))
        judged = judge.standings(pool, image, servers, now)
        standings = {standing.server.name: standing for standing in sorted(judged, key=order_of)}
        return PoolView(
            pool=pool,
            image=image,
            standings=standings,
            nodes={},  # looked at already
            maintenances={each: found for each in standings if (found := self._caches.maintenances_of(each))},
            now=now,
        )


class _Judge:
    """Where the servers of a pool stand. One that did not change, nor its Node nor a Maintenance of it, stands where it
    stood: of 10,000 few are judged anew. Used by one thread at a time."""

    def __init__(self, caches: WebCaches) -> None:
        self._caches = caches
        self._about: tuple[Any, ...] = ()
        self._kept: dict[str, tuple[tuple[Any, ...], MemberFacts]] = {}

    def standings(
        self, pool: NodePool, image: Image | None, servers: Sequence[Mapping[str, Any]], now: datetime
    ) -> list[MemberFacts]:
        """Of `servers`, as JSON."""
        target, retried = target_of(pool, image), retried_moment(pool.spec.upgrade_strategy)
        if self._about != (target, retried):
            self._about, self._kept = (target, retried), {}
        kept = {}
        for body in servers:
            name = body["metadata"]["name"]
            node, bodies = self._caches.nodes.get(name), self._caches.by_server.get(name)
            versions = tuple(each["metadata"]["resourceVersion"] for each in (body, *([node] if node else ()), *bodies))
            known = self._kept.get(name)
            if known is None or known[0] != versions or (known[1].again or math.inf) <= now.timestamp():
                maintenances = self._caches.maintenances_of(name)
                sign, server = read_node(node), decode(Server, body)
                known = (
                    versions,
                    judge_standing(server, sign, maintenances, target, retried=retried, now=now.timestamp()),
                )
            kept[name] = known
        self._kept = kept
        return [standing for _, standing in kept.values()]
