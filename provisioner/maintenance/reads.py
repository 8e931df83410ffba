"""Reading what a decision needs: from the caches, to see whether there is anything to do, or past them, to do it.

In this order: the Maintenances, then the Node, then the rest, what runs there last. An answer on the Node is written
before the end of its Maintenance: who sees the end also sees the answer. And what runs there is looked at after the
taint was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.codec import decode
from provisioner.api.errors import NotFound
from provisioner.api.maintenance import FINAL_PHASES, holding_maintenance
from provisioner.api.meta import Resource
from provisioner.cluster.resources import NODES, ResourceType, of
from provisioner.jobs.work import Workloads
from provisioner.maintenance.client import Client, Json, MaintenanceInformers
from provisioner.maintenance.decide import needs_look
from provisioner.maintenance.facts import MaintenanceFacts, NodeView, read_node
from provisioner.maintenance.phases.budget import Budget, count_budget
from provisioner.maintenance.requests.intake import is_active
from provisioner.maintenance.requests.merge import merge
from provisioner.maintenance.status.finished import newest_first

_NOT_ENDED: Final = ",".join(f"status.phase!={phase}" for phase in FINAL_PHASES)

R = TypeVar("R", bound=Resource)


class Reader(Protocol):
    """Where objects are read."""

    fresh: bool

    def get(self, type_: ResourceType, name: str) -> Json | None: ...

    def maintenances_of(self, server: str) -> list[Json]: ...

    def all_maintenances(self) -> list[Json]: ...

    def servers_of(self, pool: str) -> list[str]: ...


class CachedReader:
    """The caches: fast, and perhaps stale."""

    fresh = False

    def __init__(self, informers: MaintenanceInformers) -> None:
        self._informers = informers
        self._sources = {
            NODES: informers.nodes,
            of(Server): informers.servers,
            of(NodePool): informers.pools,
            of(Image): informers.images,
            of(Maintenance): informers.maintenances,
        }

    def get(self, type_: ResourceType, name: str) -> Json | None:
        return self._sources[type_].get(name)

    def maintenances_of(self, server: str) -> list[Json]:
        return [m for m in self._informers.maintenances.items() if (m.get("spec") or {}).get("serverRef") == server]

    def all_maintenances(self) -> list[Json]:
        return self._informers.maintenances.items()

    def servers_of(self, pool: str) -> list[str]:
        servers = self._informers.servers.items()
        return [s["metadata"]["name"] for s in servers if (s.get("spec") or {}).get("nodePoolRef") == pool]


class FreshReader:
    """The API server, as it is now."""

    fresh = True

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, type_: ResourceType, name: str) -> Json | None:
        try:
            return self._client.get(type_, name)
        except NotFound:
            return None

    def maintenances_of(self, server: str) -> list[Json]:
        return self._client.list(of(Maintenance), field_selector=f"spec.serverRef={server}").items

    def all_maintenances(self) -> list[Json]:
        """Those that have not ended; the others are many, and hold nothing."""
        return self._client.list(of(Maintenance), field_selector=_NOT_ENDED).items

    def servers_of(self, pool: str) -> list[str]:
        found = self._client.list(of(Server), field_selector=f"spec.nodePoolRef={pool}").items
        return [s["metadata"]["name"] for s in found]


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A server's Maintenances and its Node. `bodies`: the Maintenances as the API server gave them, by name."""

    server_name: str
    maintenances: tuple[Maintenance, ...]
    bodies: dict[str, Json]
    node: NodeView | None

    @property
    def holder(self) -> Maintenance | None:
        return holding_maintenance(self.maintenances, self.server_name)

    @property
    def behind(self) -> tuple[Maintenance, ...]:
        """Those that wait for the holder."""
        holder = self.holder
        return tuple(m for m in self.maintenances if is_active(m) and holder is not None and m.name != holder.name)


def see(reader: Reader, name: str) -> Seen:
    """The Maintenances of server `name`, then its Node."""
    bodies = {m["metadata"]["name"]: m for m in reader.maintenances_of(name)}
    node = read_node(reader.get(NODES, name))
    maintenances = tuple(decode(Maintenance, body) for body in bodies.values())
    return Seen(server_name=name, maintenances=maintenances, bodies=bodies, node=node)


def gather(reader: Reader, workloads: Workloads, seen: Seen, maintenance: Maintenance) -> MaintenanceFacts:
    """The facts about one of the Maintenances that were seen. Raises: Retryable."""
    holder = seen.holder
    server = _typed(Server, reader, seen.server_name)
    drain = maintenance.status.slurm
    pool_name = server.spec.node_pool_ref if server is not None else None
    if drain is not None and (server is None or not is_active(maintenance)):
        pool_name = drain.node_pool_ref or pool_name  # where it has to be lifted
    pool = _typed(NodePool, reader, pool_name)
    facts = MaintenanceFacts(
        server_name=seen.server_name,
        maintenance=maintenance,
        wanted=merge(maintenance),
        server=server,
        node=seen.node,
        pool=pool,
        image=None,
        ahead=holder if holder is not None and holder.name != maintenance.name else None,
        finished=newest_first(seen.maintenances),
    )
    attempt = maintenance.status.reboot
    facts = replace(facts, image=_typed(Image, reader, attempt.image_ref if attempt is not None else facts.image_name))
    if server is None or pool is None or not needs_look(facts):
        return facts
    return replace(facts, work=workloads.look(server, pool))


def read_budget(reader: Reader, facts: MaintenanceFacts) -> Budget | None:
    """The budget of the pool, as `facts.maintenance` sees it."""
    if facts.pool is None:
        return None
    maintenances = [decode(Maintenance, body) for body in reader.all_maintenances()]
    servers = reader.servers_of(facts.pool.name)
    return count_budget(facts.pool, servers, maintenances, own=facts.maintenance.name, fresh=reader.fresh)


def _typed(kind: type[R], reader: Reader, name: str | None) -> R | None:
    body = reader.get(of(kind), name) if name else None
    return decode(kind, body) if body is not None else None
