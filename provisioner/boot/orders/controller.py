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
from provisioner.api.codec import decode_shared
from provisioner.api.maintenance import FINAL_PHASES, holding_maintenance
from provisioner.boot.orders.assessment import Decision
from provisioner.boot.orders.decide import decide
from provisioner.boot.orders.facts import OrderFacts
from provisioner.boot.orders.informers import BootInformers, find_other_node, follow, machine_keys, server_of
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller, Settling, requeue_after
from provisioner.cluster.events import Events
from provisioner.cluster.own_writes import BEHIND_SECONDS, OwnedStatus, OwnWrites
from provisioner.cluster.resources import LEASES, NODE_LEASES, NODES, of
from provisioner.cluster.source import look_up
from provisioner.rules.assigned_image import next_image_name
from provisioner.rules.dpus import awaiting
from provisioner.rules.liveness import LeaseWatch, NodeLife, read_life
from provisioner.rules.pool_of_server import next_pool_name, ordered_pool_name

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-boot-controller"
UNSYNCED_SECONDS: Final = 0.2
SETTLE_SECONDS: Final = 4.0
"""A stage that a booting machine has left so soon is in its progress, and not written once more. Longer than the pause
between two writes of progress: they would meet."""

_OWNED: Final = OwnedStatus(
    ("nodeRef", "bootStage", "bootID", "imageRef", "imageDigest", "nodePoolRef", "order", "readyTime"),
    ("Booted", "Ready"),
)


class BootController:
    """Reconciles one Server at a time, by name."""

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
        self._cluster = cluster
        self._informers = informers
        self._events = events
        self._now = now
        self._rng = rng
        self._own = OwnWrites(now)
        self._settling = Settling(settle_seconds)
        self._leases = leases or LeaseWatch(time.monotonic)
        self._nodes_by_machine = informers.nodes.index(machine_keys)
        self._unfinished = informers.maintenances.index(_unfinished_by_server)
        self._awaited = informers.servers.index(awaiting)

    def reconcile(self, name: str) -> float | None:
        """Bring the Server's status up to date; returns when to look again. Raises: Retryable, NeedsHuman."""
        if not self._informers.have_synced:
            return UNSYNCED_SECONDS  # a pool that is not in the cache yet is not a missing pool
        cached = self._informers.servers.get(name)
        if cached is None or cached["metadata"].get("deletionTimestamp"):
            return None
        if not _is_judged(cached):
            return None  # the inventory says within a moment whether it may boot; until then there is nothing to add
        if not self._own.are_seen(name, lambda type_, key: self._informers.servers.get(key)):
            return BEHIND_SECONDS
        node = self._informers.nodes.get(name)
        lease = self._informers.leases.get(f"{NODE_LEASES}/{name}")
        decision = self._decide(cached, node, lease, self._cached_maintenance(name))
        if not _OWNED.differs(cached, decision.status):
            self._settling.is_written(name)
            return requeue_after(decision.requeue_after_seconds, self._rng)
        if _is_words(cached, decision) and (rest := self._settling.rest(name)) > 0:
            return rest
        if decision.orders or decision.revokes:
            # A boot may end somebody's work: decide once more on what Node and Maintenance are now, past every cache.
            # Of the Server the resourceVersion says whether it is still what was decided on. The Node of a boot that a
            # Maintenance asks for may live: it was emptied.
            maintenance = self._read_maintenance(name)
            decision = self._decide(cached, node, lease, maintenance)
            if not decision.orders or decision.status["order"]["reason"] != "Requested":
                node = self._cluster.find(NODES, name)
                lease = self._cluster.find(LEASES, name, namespace=NODE_LEASES) if node is not None else None
                decision = self._decide(cached, node, lease, maintenance)
            if not _OWNED.differs(cached, decision.status):
                return requeue_after(decision.requeue_after_seconds, self._rng)
        # Under the resourceVersion always: whoever led before must not bring an order back that was replaced.
        with self._own.written_on(name, of(Server), cached):
            written = self._cluster.apply_status(
                Server,
                name,
                decision.status,
                manager=MANAGER,
                resource_version=cached["metadata"]["resourceVersion"],
            )
        self._own.note(name, of(Server), written)
        self._settling.is_written(name)
        if decision.orders:
            order = decision.status["order"]
            log.info(
                "boot was ordered", server=name, order=order["id"], reason=order["reason"], attempt=order["attempt"]
            )
        if decision.revokes:
            log.info("boot order was revoked", server=name, back_to=decision.status["order"]["id"])
        for event in decision.events:
            self._events.record(cached, event.type, event.reason, event.message)
        return requeue_after(decision.requeue_after_seconds, self._rng)

    def _decide(
        self,
        body: Mapping[str, Any],
        node: Mapping[str, Any] | None,
        lease: Mapping[str, Any] | None,
        maintenance: Maintenance | None,
    ) -> Decision:
        server = decode_shared(Server, body)
        next_pool = look_up(NodePool, self._informers.pools, next_pool_name(server, maintenance))
        order = server.status.order
        facts = OrderFacts(
            server=server,
            rack=look_up(Rack, self._informers.racks, server.spec.rack_ref),
            pool=look_up(NodePool, self._informers.pools, ordered_pool_name(server)),
            next_pool=next_pool,
            next_image=look_up(Image, self._informers.images, next_image_name(server, next_pool, maintenance)),
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
    accepted = any(condition.get("type") == "Accepted" for condition in status.get("conditions") or ())
    return accepted or status.get("order") is not None or bool(status.get("address"))


def _unfinished_by_server(maintenance: Mapping[str, Any]) -> Iterable[str]:
    """Finished ones are kept for weeks: nobody goes through all of them."""
    finished = (maintenance.get("status") or {}).get("phase") in FINAL_PHASES
    return () if finished else (server_of(maintenance),)


def _note(leases: LeaseWatch, key: str, lease: Mapping[str, Any] | None) -> None:
    leases.look(key.removeprefix(f"{NODE_LEASES}/"), lease)


def _is_words(body: Mapping[str, Any], decision: Decision) -> bool:
    """Whether what is new is how far a boot is, and nobody waits for that."""
    tells = decision.orders or decision.revokes or bool(decision.events)
    return not tells and _OWNED.keeps("Ready", body, decision.status)
