"""The executor's loop: one decision on the caches, one effect under the resourceVersions that it was decided on, and
the next decision once the caches show that effect.

What ends or locks out for good what runs on a server is decided once more on what is true at that moment.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import structlog

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.errors import Conflict, Refused, Retryable
from provisioner.api.nodes.maintenance import DISTURBING_PHASES, FINAL_PHASES
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.metrics import MaintenanceMeter
from provisioner.cluster.own_writes import BEHIND_SECONDS, OwnWrites
from provisioner.cluster.reconciler import when_synced
from provisioner.cluster.source import Object
from provisioner.jobs.model.work import Workloads
from provisioner.maintenance.decide import RESYNC_SECONDS, cannot_be_taken_back, decide
from provisioner.maintenance.effects import GONE_SECONDS, MaintenanceEffects
from provisioner.maintenance.follow import MaintenanceInformers, follow
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.node_refusals import NodeRefusals
from provisioner.maintenance.model.steps import (
    NeedBudget,
    NodeWrite,
    SetIntent,
    SetNodeConditions,
    SetTaint,
    Step,
    WriteStatus,
    node_write_of,
)
from provisioner.maintenance.phases.kept_drain import has_slurm, why_unverified
from provisioner.maintenance.phases.release import find_leftover
from provisioner.maintenance.reads import IndexedCaches, Seen, gather, look_at_work, read_budget, see
from provisioner.maintenance.requests.intake import FileRequestor, Intake, SetConditions, Withdraw, take_in
from provisioner.maintenance.requests.of_cards import ask_for_cards
from provisioner.maintenance.slurm_acts import clear_slurm
from provisioner.maintenance.status.finished import is_due
from provisioner.maintenance.status.record import clip
from provisioner.rules.nodes import NodeView
from provisioner.rules.pool_of_server import current_pool_name

MAX_STEPS: Final = 64
REFUSED_SECONDS: Final = 60.0

log = structlog.get_logger(__name__)


class MaintenanceController:
    """Reconciles one server at a time, by name."""

    def __init__(
        self,
        cluster: Cluster,
        informers: MaintenanceInformers,
        workloads: Workloads,
        events: Events,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        metrics: MaintenanceMeter | None = None,
    ) -> None:
        self._workloads = workloads
        self._events = events
        self._clock = clock
        own = OwnWrites(clock)
        self._caches = IndexedCaches(informers, own)
        self._effects = MaintenanceEffects(cluster, workloads, events, own, clock=clock, new_id=new_id, metrics=metrics)
        self._one_claims = threading.Lock()
        self._refusals = NodeRefusals()
        self._taken_back: set[str] = set()
        """Nodes whose conditions were taken back since a Maintenance had them; who says them again means it."""

    def reconcile(self, name: str) -> float | None:
        """Bring the Maintenances of server `name` on; returns when to look again. Raises: Retryable, NeedsHuman."""
        for _ in range(MAX_STEPS):
            if not self._caches.show_own_writes(name):
                return BEHIND_SECONDS
            again = self._step(name)
            if again is not None:
                return again
        return 0.0

    def _wishes(self, name: str, seen: Seen) -> Iterator[Intake | None]:
        """What the Node asks for, then what its cards ask for: one of those that cannot be read stops no reboot."""
        yield take_in(seen.node, seen.maintenances, self._clock())
        yield ask_for_cards(name, seen.maintenances, self._caches.cards_of(name), self._clock())

    def _step(self, name: str) -> float | None:
        """Do the first thing that is to be done about a server; returns seconds until the next look if there is none.

        None: something was done.
        """
        seen, again = see(self._caches, name), RESYNC_SECONDS
        for wish in self._wishes(name, seen):
            if wish is not None:
                if self._take_in(seen, wish):
                    return None
                again = REFUSED_SECONDS
        holder = seen.holder
        for maintenance in (*((holder,) if holder is not None else ()), *seen.behind, *self._unfinished(seen)):
            facts = gather(self._caches, self._workloads, seen, maintenance)
            seconds = self._advance(seen, replace(facts, refused=self._refusals.of(name)))
            if seconds is None:
                return None
            again = min(again, seconds)
        if holder is not None:
            self._taken_back.discard(name)
        elif seen.node is not None:
            leftover = find_leftover(seen.node, keeps_taint=self._keeps_taint(name, seen.node))
            if leftover is not None and not (isinstance(leftover, SetNodeConditions) and name in self._taken_back):
                self._clear(name, seen.node, leftover)
                return None
        due = is_due(seen.maintenances, self._clock())
        if due is not None:
            self._effects.delete(due)
            return GONE_SECONDS
        return again

    def _advance(self, seen: Seen, facts: MaintenanceFacts) -> float | None:
        """The next step of one Maintenance; returns seconds if it only waits."""
        step = decide(facts, self._clock())
        body = seen.bodies[facts.maintenance.name]
        if isinstance(step, NeedBudget) and not step.fresh:
            facts = replace(facts, budget=read_budget(self._caches, facts, fresh=False))
            step = decide(facts, self._clock())
        if isinstance(step, NeedBudget):
            # Workers of this process claim one after the other; another process is noticed after the claim.
            with self._one_claims:
                facts = replace(facts, budget=read_budget(self._caches, facts, fresh=True))
                step = decide(facts, self._clock())
                if isinstance(step, WriteStatus) and step.status.phase in DISTURBING_PHASES:
                    seconds = self._act(facts, body, step)
                    self._caches.note_claim({**body, "status": to_json(step.status)})
                    return seconds
        # Not under the lock: what else there is to do (to warn jobs, to close in Slurm) may wait for somebody.
        return self._act(facts, body, step)

    def _act(self, facts: MaintenanceFacts, body: Object, step: Step) -> float | None:
        if cannot_be_taken_back(facts, step):
            facts = look_at_work(self._workloads, facts, fresh=True)
            step = decide(facts, self._clock())
        write = node_write_of(step)
        if write is None:
            seconds = self._effects.carry_out(facts, body, step)
            if isinstance(step, WriteStatus) and step.status.phase != facts.maintenance.status.phase:
                self._refusals.forget(facts.server_name)  # what comes next begins anew
            return seconds
        return self._write_node(facts, body, step, write)

    def _write_node(self, facts: MaintenanceFacts, body: Object, step: Step, write: NodeWrite) -> float | None:
        """A write that fails is a fact for the next decision."""
        name, now = facts.server_name, self._clock()
        try:
            seconds = self._effects.carry_out(facts, body, step)
        except Refused as error:
            refusal = self._refusals.note(name, write, str(error), now)
            log.warning(
                "the API server refused a write", server=name, write=write, count=refusal.count, error=str(error)
            )
            return None
        except Retryable as error:
            self._refusals.note(name, write, str(error), now, rests=False)
            raise
        self._refusals.forget(name, write)
        return seconds

    def _take_in(self, seen: Seen, wish: Intake) -> bool:
        """One thing about the requests of a Node; False if the API server refuses it, which holds nothing else up."""
        try:
            self._obey(seen, wish)
        except Refused as error:
            log.warning("a request was refused by the API server", server=seen.server_name, error=str(error))
            if seen.node is not None:
                self._events.record(seen.node.body, "Warning", "RequestRefused", clip(str(error)))
            return False
        return True

    def _obey(self, seen: Seen, wish: Intake) -> None:
        match wish:
            case FileRequestor(requestor=requestor, target=None):
                self._effects.create(seen.server_name, requestor, list(seen.bodies))
            case FileRequestor(requestor=requestor, target=Maintenance() as target):
                others = tuple(r for r in target.spec.requestors if r.name != requestor.name)
                self._effects.set_requestors(target, (*others, requestor))
            case Withdraw(requestor=name, target=target, unasked=unasked):
                if unasked and self._effects.is_asked(seen.server_name, name):
                    raise Conflict(f"Node '{seen.server_name}' asks for it by now", after_seconds=BEHIND_SECONDS)
                self._effects.set_requestors(target, tuple(r for r in target.spec.requestors if r.name != name))
            case SetConditions(conditions=conditions, refusals=refusals) if seen.node is not None:
                self._effects.set_conditions(seen.node, conditions)
                for refusal in refusals:
                    self._events.record(seen.node.body, "Warning", "RequestRefused", refusal.message)
                for condition in conditions:
                    if condition.reason == "Stale":
                        self._events.record(seen.node.body, "Normal", "RequestStale", condition.message)

    def _clear(self, name: str, node: NodeView, leftover: SetIntent | SetTaint | SetNodeConditions) -> None:
        """Clear away what was left on a Node, unless the Maintenance that its taint names is not over after all."""
        if node.taint is not None and self._effects.is_under_way(node.taint):
            raise Conflict(f"Server '{name}' has a Maintenance by now", after_seconds=0.1)
        match leftover:
            case SetIntent():
                self._effects.set_intent(node, None)
            case SetTaint():
                server, pool = self._server_and_pool(name)
                if server is not None and pool is not None and has_slurm(pool):
                    clear_slurm(self._workloads, server, pool, node.taint or "")
                self._effects.set_taint(node, None)
                self._events.record(node.body, "Warning", "LeftoverCleared", f"taint of {node.taint} taken off")
            case SetNodeConditions(conditions=conditions):
                self._effects.set_conditions(node, conditions)
                self._taken_back.add(name)

    def _keeps_taint(self, name: str, node: NodeView) -> bool:
        """Whether a taint that was left stays for now: the server has a drain in Slurm, too, and is not verified."""
        if node.taint is None:
            return False
        server, pool = self._server_and_pool(name)
        return has_slurm(pool) and why_unverified(server, node) is not None

    def _server_and_pool(self, name: str) -> tuple[Server | None, NodePool | None]:
        server = self._caches.typed(Server, name)
        return server, self._caches.typed(NodePool, current_pool_name(server) if server is not None else None)

    def _unfinished(self, seen: Seen) -> tuple[Maintenance, ...]:
        """Those that have ended and may go, or still have a drain in Slurm to lift."""
        return tuple(
            m
            for m in seen.maintenances
            if m.status.phase in FINAL_PHASES
            and (m.metadata.deletion_timestamp is not None or m.status.slurm is not None)
        )


def build_maintenance_controllers(
    cluster: Cluster,
    informers: MaintenanceInformers,
    workloads: Workloads,
    events: Events,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    *,
    rng: random.Random | None = None,
    metrics: MaintenanceMeter | None = None,
    workers: int = 4,
) -> list[Controller]:
    """The executor, following its caches. Build it anew for each leadership, run it while leading."""
    source = rng or random.SystemRandom()
    executor = MaintenanceController(
        cluster,
        informers,
        workloads,
        events,
        clock=clock,
        new_id=lambda: str(uuid.UUID(int=source.getrandbits(128), version=4)),
        metrics=metrics,
    )
    controller = Controller("maintenance", when_synced(informers.all, executor.reconcile), workers=workers)
    follow(informers, controller.queue.add)
    return [controller]
