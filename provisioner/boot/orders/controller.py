"""The boot controller's effects: reads what a decision needs, writes what was decided, records what happened.

It is level-triggered. Everything is written under the resourceVersion of the Server that it was decided on; the one
thing that must not happen wrongly, a boot order, only after Node, Lease and Maintenance were read again past every
cache.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from provisioner.api import Image, Maintenance, NodePool, Rack, Server
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.nodes.maintenance import FINAL_PHASES, holding_maintenance
from provisioner.boot.orders.assessment import OrderDecision
from provisioner.boot.orders.decide import decide
from provisioner.boot.orders.facts import OrderFacts
from provisioner.boot.orders.informers import BootInformers, find_other_node, follow, machine_keys, server_of
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.reconciler import StatusReconciler
from provisioner.cluster.resources import LEASES, NODE_LEASES, NODES, of
from provisioner.cluster.source import Object, conditions_of, look_up
from provisioner.rules.assigned_image import next_image
from provisioner.rules.dpus import awaiting
from provisioner.rules.liveness import LeaseWatch, NodeLife, read_life
from provisioner.rules.ownership import owned_by
from provisioner.rules.pool_of_server import next_pool_name, ordered_pool_name

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-boot-controller"
SETTLE_SECONDS: Final = 4.0
"""A stage that a booting machine has left so soon is in its progress, and not written once more. Longer than the pause
between two writes of progress: they would meet."""

OWNED: Final = owned_by(MANAGER, Server)


class BootController(StatusReconciler[OrderDecision]):
    """Reconciles one Server at a time, by name."""

    owned = OWNED

    def __init__(
        self,
        cluster: Cluster,
        informers: BootInformers,
        events: Events,
        *,
        now: Callable[[], datetime],
        rng: random.Random,
        leases: LeaseWatch | None = None,
        settle_seconds: float = 0.0,
    ) -> None:
        super().__init__(
            cluster, informers.servers, events, caches=informers.all, now=now, rng=rng, settle_seconds=settle_seconds
        )
        self._informers = informers
        self._leases = leases or LeaseWatch(time.monotonic)
        self._nodes_by_machine = informers.nodes.index(machine_keys)
        self._unfinished = informers.maintenances.index(_unfinished_by_server)
        self._awaited = informers.servers.index(awaiting)

    def decide(self, key: str, body: Object) -> OrderDecision | None:
        if not _is_judged(body):
            return None  # the inventory says within a moment whether it may boot; until then there is nothing to add
        return self._decide(body, *self._cached_node(key), self._cached_maintenance(key))

    def is_words(self, body: Object, said: OrderDecision) -> bool:
        tells = said.orders or said.revokes or bool(said.events)
        return not tells and OWNED.keeps("Ready", body, said.status)

    def confirm(self, body: Object, said: OrderDecision) -> OrderDecision:
        """A boot may end somebody's work: it is decided once more on what Node and Maintenance are now.

        Of the Server the resourceVersion says whether it is still what was decided on. The Node of a boot that a
        Maintenance asks for may live: it was emptied.
        """
        if not (said.orders or said.revokes):
            return said
        name = body["metadata"]["name"]
        maintenance = self._read_maintenance(name)
        said = self._decide(body, *self._cached_node(name), maintenance)
        if said.orders and said.status["order"]["reason"] == "Requested":
            return said
        node = self._cluster.find(NODES, name)
        lease = self._cluster.find(LEASES, name, namespace=NODE_LEASES) if node is not None else None
        return self._decide(body, node, lease, maintenance)

    def tell(self, body: Object, said: OrderDecision) -> None:
        name, order = body["metadata"]["name"], said.status.get("order")
        if said.orders and order is not None:
            log.info(
                "boot was ordered", server=name, order=order["id"], reason=order["reason"], attempt=order["attempt"]
            )
        if said.revokes and order is not None:
            log.info("boot order was revoked", server=name, back_to=order["id"])
        super().tell(body, said)

    def _cached_node(self, name: str) -> tuple[Object | None, Object | None]:
        """And its Lease."""
        return self._informers.nodes.get(name), self._informers.leases.get(f"{NODE_LEASES}/{name}")

    def _decide(
        self,
        body: Mapping[str, Any],
        node: Mapping[str, Any] | None,
        lease: Mapping[str, Any] | None,
        maintenance: Maintenance | None,
    ) -> OrderDecision:
        server = decode_shared(Server, body)
        next_pool = look_up(NodePool, self._informers.pools, next_pool_name(server, maintenance))
        order = server.status.order
        facts = OrderFacts(
            server=server,
            rack=look_up(Rack, self._informers.racks, server.spec.rack_ref),
            pool=look_up(NodePool, self._informers.pools, ordered_pool_name(server)),
            next_pool=next_pool,
            next_image=look_up(Image, self._informers.images, next_image(server, next_pool, maintenance).name),
            ordered_image=look_up(Image, self._informers.images, order.image_ref if order else None),
            node=self._judge_node(node, lease),
            other_node=self._find_other_node(server) if order is None else None,
            maintenance=maintenance,
            awaited=tuple(str(each["metadata"]["name"]) for each in self._awaited.get(server.name)),
        )
        return decide(facts, self._now(), str(uuid.UUID(int=self._rng.getrandbits(128), version=4)))

    def _judge_node(self, node: Mapping[str, Any] | None, lease: Mapping[str, Any] | None) -> NodeLife | None:
        if node is None:
            return None
        return read_life(node, lease, self._leases.look(node["metadata"]["name"], lease), self._now())

    def _find_other_node(self, server: Server) -> str | None:
        def is_alive(node: Mapping[str, Any]) -> bool:
            other = self._informers.servers.get(node["metadata"]["name"])
            if ((other or {}).get("status", {}).get("join") or {}).get("tokenID") is not None:
                return (
                    False  # one that was booted here: which machine it is, is known, whatever its Node says of itself
                )
            lease = self._informers.leases.get(f"{NODE_LEASES}/{node['metadata']['name']}")
            judged = self._judge_node(node, lease)
            return judged is not None and judged.is_alive(self._now())

        return find_other_node(server, self._nodes_by_machine, is_alive)

    def _cached_maintenance(self, server: str) -> Maintenance | None:
        return holding_maintenance((decode_shared(Maintenance, body) for body in self._unfinished.get(server)), server)

    def _read_maintenance(self, server: str) -> Maintenance | None:
        """Which of those that the cache knows holds the server now."""
        names = [body["metadata"]["name"] for body in self._unfinished.get(server)]
        found = [body for name in names if (body := self._cluster.find(of(Maintenance), name)) is not None]
        return holding_maintenance((decode_shared(Maintenance, body) for body in found), server)


def build_boot_controllers(
    cluster: Cluster,
    informers: BootInformers,
    recorder: Events,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    rng: random.Random | None = None,
    *,
    workers: int = 8,
) -> list[Controller]:
    """The boot controller, following its caches. Build it anew for each leadership, run it while leading."""
    leases = LeaseWatch(time.monotonic)
    boot = BootController(
        cluster,
        informers,
        recorder,
        now=clock,
        rng=rng or random.SystemRandom(),
        leases=leases,
        settle_seconds=SETTLE_SECONDS,
    )
    controller = Controller("boot", boot.reconcile, workers=workers)
    informers.leases.subscribe(lambda key, old, new: _note(leases, key, new))
    follow(informers, controller.queue.add)
    return [controller]


def _is_judged(server: Mapping[str, Any]) -> bool:
    """Whether the inventory has said what it thinks of the Server; or was it ordered to boot before."""
    status = server.get("status") or {}
    return bool(conditions_of(server, "Accepted")) or status.get("order") is not None or bool(status.get("address"))


def _unfinished_by_server(maintenance: Mapping[str, Any]) -> Iterable[str]:
    """Finished ones are kept for weeks: nobody goes through all of them."""
    finished = (maintenance.get("status") or {}).get("phase") in FINAL_PHASES
    return () if finished else (server_of(maintenance),)


def _note(leases: LeaseWatch, key: str, lease: Mapping[str, Any] | None) -> None:
    leases.look(key.removeprefix(f"{NODE_LEASES}/"), lease)
