"""Reading what a decision needs. Decisions are made on the caches, and written under the resourceVersions that they
were made on: one that was made on what is no longer true meets a conflict. Past the caches goes only a look at what
runs on a server, right before that is ended or locked out for good.

In this order: the Maintenances, then the Node, then the rest, what runs there last. An answer on the Node is written
before the end of its Maintenance: who sees the end also sees the answer.

Watches tell of all Maintenances in the order in which they were written. So a cache that shows our own claim shows
every claim that was written before it: of two leaders who claim more than the budget allows, the later one sees it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.machinery.meta import Resource
from provisioner.api.nodes.maintenance import holding_maintenance
from provisioner.cluster.own_writes import OwnWrites
from provisioner.cluster.resources import NODES, ResourceType, of
from provisioner.cluster.source import Lookup, Object, Source, look_up
from provisioner.jobs.model.work import Workloads
from provisioner.maintenance.decide import needs_look
from provisioner.maintenance.follow import MaintenanceInformers
from provisioner.maintenance.model.budget import Budget, asked_before, count_budget, part_of
from provisioner.maintenance.model.facts import HostView, MaintenanceFacts
from provisioner.maintenance.requests.of_cards import DpuMaintenances
from provisioner.maintenance.status.finished import newest_first
from provisioner.rules.dpus import hosts
from provisioner.rules.nodes import NodeView, read_node
from provisioner.rules.pool_of_server import current_pool_in, current_pool_name
from provisioner.rules.requests import is_active, merge

R = TypeVar("R", bound=Resource)


class IndexedCaches:
    """The caches, with indices: nothing here goes through all objects of a kind for one server.

    `own`: by server, what this process wrote and the caches may not show yet.
    """

    def __init__(self, informers: MaintenanceInformers, own: OwnWrites) -> None:
        self._informers = informers
        self._own = own
        self._sources = {
            NODES: informers.nodes,
            of(Server): informers.servers,
            of(NodePool): informers.pools,
            of(Image): informers.images,
            of(Maintenance): informers.maintenances,
        }
        self._by_server = informers.maintenances.index(lambda body: ((body.get("spec") or {}).get("serverRef"),))
        self._by_part = informers.maintenances.index(lambda body: (part_of(body),))
        self._members = informers.servers.index(lambda body: (current_pool_in(body),))
        self._cards = informers.servers.index(hosts)
        self._claims_lock = threading.Lock()
        self._claims: dict[str, Object] = {}

    def get(self, type_: ResourceType, name: str) -> Object | None:
        return self._sources[type_].get(name)

    def typed(self, kind: type[R], name: str | None) -> R | None:
        return look_up(kind, self._sources[of(kind)], name)

    def show_own_writes(self, server: str) -> bool:
        """Whether all that this process wrote about `server` is seen."""
        return self._own.are_seen(server, self.get)

    def maintenances_of(self, server: str) -> list[Object]:
        return self._by_server.get(server)

    def cards_of(self, host: str) -> list[DpuMaintenances]:
        """The DPUs in a server."""
        found = (decode_shared(Server, body) for body in self._cards.get(host))
        return [DpuMaintenances(server=each, maintenances=self.typed_maintenances_of(each.name)) for each in found]

    def typed_maintenances_of(self, server: str) -> tuple[Maintenance, ...]:
        return tuple(decode_shared(Maintenance, body) for body in self.maintenances_of(server))

    def note_claim(self, claim: Object) -> None:
        """Remember a claim of this process, which counts before the cache shows it."""
        with self._claims_lock:
            self._claims[claim["metadata"]["name"]] = claim

    def disturbing(self) -> list[Object]:
        """The Maintenances that have claimed their server and not released it, claims of this process included."""
        with self._claims_lock:
            self._claims = {n: c for n, c in self._claims.items() if not self.show_own_writes(c["spec"]["serverRef"])}
            noted = dict(self._claims)
        # Read after them: a claim that the cache takes in meanwhile is in both, never in neither.
        return list({**{body["metadata"]["name"]: body for body in self._by_part.get("Disturbs")}, **noted}.values())

    def waiting_for_budget(self) -> list[Object]:
        """Those that wait for nothing but the budget, or those before them, by their own status."""
        return self._by_part.get("Waits")

    def servers_of(self, pool: str) -> Collection[str]:
        return _Members(self._informers.servers, self._members, pool)


@dataclass(frozen=True)
class _Members(Collection[str]):
    """The servers of a pool, not copied."""

    _servers: Source
    _index: Lookup
    _pool: str

    def __contains__(self, name: object) -> bool:
        return current_pool_in(self._servers.get(str(name))) == self._pool

    def __iter__(self) -> Iterator[str]:
        return (body["metadata"]["name"] for body in self._index.get(self._pool))

    def __len__(self) -> int:
        return len(self._index.get(self._pool))


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A server's Maintenances and its Node. `bodies`: the Maintenances as the API server gave them, by name."""

    server_name: str
    maintenances: tuple[Maintenance, ...]
    bodies: dict[str, Object]
    node: NodeView | None

    @property
    def holder(self) -> Maintenance | None:
        return holding_maintenance(self.maintenances, self.server_name)

    @property
    def behind(self) -> tuple[Maintenance, ...]:
        """Those that wait for the holder."""
        holder = self.holder
        return tuple(m for m in self.maintenances if is_active(m) and holder is not None and m.name != holder.name)


def see(caches: IndexedCaches, name: str) -> Seen:
    """The Maintenances of server `name`, then its Node."""
    bodies = {m["metadata"]["name"]: m for m in caches.maintenances_of(name)}
    node = read_node(caches.get(NODES, name))
    maintenances = tuple(decode_shared(Maintenance, body) for body in bodies.values())
    return Seen(server_name=name, maintenances=maintenances, bodies=bodies, node=node)


def gather(caches: IndexedCaches, workloads: Workloads, seen: Seen, maintenance: Maintenance) -> MaintenanceFacts:
    """The facts about one of the Maintenances that were seen. Raises: Retryable."""
    holder = seen.holder
    server = caches.typed(Server, seen.server_name)
    drain = maintenance.status.slurm
    here = pool = caches.typed(NodePool, current_pool_name(server) if server is not None else None)
    drained_in = caches.typed(NodePool, drain.node_pool_ref) if drain is not None else None
    if drain is not None and drain.node_pool_ref is not None and (server is None or not is_active(maintenance)):
        pool = drained_in  # where it has to be lifted
    facts = MaintenanceFacts(
        server_name=seen.server_name,
        maintenance=maintenance,
        wanted=merge(maintenance),
        server=server,
        node=seen.node,
        pool=pool,
        image=None,
        here=here,
        drained_in=drained_in,
        ahead=holder if holder is not None and holder.name != maintenance.name else None,
        finished=newest_first(seen.maintenances),
        host=_host_of(caches, server),
    )
    attempt = maintenance.status.reboot
    moves_to = attempt.node_pool_ref if attempt is not None else None
    next_pool = caches.typed(NodePool, moves_to or facts.next_pool_name)
    wanted_image = caches.typed(Image, next_pool.spec.image_ref) if next_pool is not None else None
    facts = replace(facts, next_pool=next_pool, wanted_image=wanted_image)
    facts = replace(facts, image=caches.typed(Image, attempt.image_ref if attempt is not None else facts.image_name))
    return look_at_work(workloads, facts, fresh=False)


def _host_of(caches: IndexedCaches, server: Server | None) -> HostView | None:
    """By what the controllers themselves have on record of the host, as its Node could say anything of itself."""
    if server is None or server.spec.dpu is None:
        return None
    name = server.spec.dpu.host_ref
    holder = holding_maintenance(caches.typed_maintenances_of(name), name)
    is_drained = holder is not None and holder.status.phase == "Drained"
    return HostView(name=name, in_use=caches.get(NODES, name) is not None and not is_drained)


def look_at_work(workloads: Workloads, facts: MaintenanceFacts, *, fresh: bool) -> MaintenanceFacts:
    """`facts` with what runs on the server, where that matters; `fresh`: past every cache. Raises: Retryable."""
    if facts.server is None or facts.pool is None or not needs_look(facts):
        return facts
    return replace(facts, work=workloads.look(facts.server, facts.pool, fresh=fresh))


def read_budget(caches: IndexedCaches, facts: MaintenanceFacts, *, fresh: bool) -> Budget | None:
    """The budget of the pool, as `facts.maintenance` sees it. `fresh`: nobody else of this process claims meanwhile."""
    if facts.pool is None:
        return None
    members, own = caches.servers_of(facts.pool.name), facts.maintenance
    budget = count_budget(facts.pool, members, caches.disturbing(), own=own.name, fresh=fresh)
    if not budget.has_room:
        return budget  # who comes first matters where there is room

    before = asked_before(budget, members, caches.waiting_for_budget(), caches.typed_maintenances_of, own)
    return replace(budget, before=before)
