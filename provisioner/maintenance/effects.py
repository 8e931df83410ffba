"""Carrying out one step. Every write says on what it was decided, so that of two executors one fails.

Before jobs are ended, the Maintenance is read once more: whoever else leads writes there first what it is about to do,
and to the Node only then. What else is written to a Node, who knows better writes anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import structlog

from provisioner.api import Maintenance
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.errors import Conflict, NotFound, Refused, Retryable
from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.api.machinery.wording import quantity
from provisioner.api.nodes.contract import (
    BOOT_INTENT_ANNOTATION,
    MAINTENANCE_CONDITIONS,
    MAINTENANCE_TAINT,
    MaintenanceEffect,
)
from provisioner.api.nodes.maintenance import FINAL_PHASES, RELEASE_FINALIZER, MaintenanceStatus, Requestor
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events
from provisioner.cluster.json_patch import pointer
from provisioner.cluster.metrics import MaintenanceMeter
from provisioner.cluster.own_writes import OwnWrites
from provisioner.cluster.resources import NODES, of
from provisioner.cluster.source import Object
from provisioner.jobs.model.work import Workloads
from provisioner.maintenance.model.facts import MaintenanceFacts, close_reason
from provisioner.maintenance.model.steps import (
    CloseSlurm,
    Evict,
    NeedBudget,
    NeedId,
    ReopenSlurm,
    ReserveSlurm,
    SetFinalizer,
    SetIntent,
    SetNodeConditions,
    SetTaint,
    Step,
    Wait,
    WriteStatus,
)
from provisioner.maintenance.phases.claiming import after_eviction
from provisioner.maintenance.phases.kept_drain import has_slurm
from provisioner.maintenance.requests.request import CONDITION_OF, read_requests
from provisioner.maintenance.slurm_acts import act_in_slurm
from provisioner.maintenance.status.measure import tell_events, tell_metrics
from provisioner.maintenance.status.node_status import NodeCondition, conditions_patch
from provisioner.maintenance.status.record import note, set_blockers
from provisioner.rules.filing import file_maintenance
from provisioner.rules.nodes import NodeView, read_node, taint_value

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-maintenance"
_TAINTS: Final = pointer("spec", "taints")
_INTENT: Final = pointer("metadata", "annotations", BOOT_INTENT_ANNOTATION)
GONE_SECONDS: Final = 1.0
"""Until the caches show that a Maintenance is gone."""


class MaintenanceEffects:
    """The hands of the executor."""

    def __init__(
        self,
        client: Cluster,
        workloads: Workloads,
        events: Events,
        own: OwnWrites,
        *,
        clock: Callable[[], datetime],
        new_id: Callable[[], str],
        metrics: MaintenanceMeter | None,
    ) -> None:
        self._client = client
        self._workloads = workloads
        self._events = events
        self._own = own
        self._clock = clock
        self._new_id = new_id
        self._metrics = metrics

    def carry_out(self, facts: MaintenanceFacts, body: Object, step: Step) -> float | None:
        """Do it; returns after how many seconds to look again, or None: at once. Raises: Conflict, Retryable."""
        now, node = self._clock(), facts.node
        match step:
            case WriteStatus():
                self._write(facts, body, step.status, now)
            case NeedId():
                self._write(facts, body, step.then(self._new_id()).status, now)
            case NeedBudget():
                raise Retryable("the budget was not read")
            case SetFinalizer():
                self._finalize(facts.maintenance, body, present=step.present)
                return None if step.present else GONE_SECONDS
            case SetTaint() if node is not None:
                if step.value is None and node.taint != taint_value(facts.maintenance.name):
                    self._same(facts)  # another one's, left over or just put on
                self.set_taint(node, step.value, step.effect)
            case SetIntent() if node is not None:
                if step.intent is not None and step.intent.action != "Stage":
                    self._same(facts)
                text = json.dumps(to_json(step.intent), separators=(",", ":")) if step.intent is not None else None
                self.set_intent(node, text)
            case SetNodeConditions() if node is not None:
                self.set_conditions(node, step.conditions)
            case CloseSlurm() | ReserveSlurm() | ReopenSlurm() | Evict():
                return self._workload(facts, body, step)
            case Wait():
                return self._wait(facts, body, step)
        return None

    def _workload(
        self, facts: MaintenanceFacts, body: Object, step: CloseSlurm | ReserveSlurm | ReopenSlurm | Evict
    ) -> float | None:
        if facts.pool is None or (facts.server is None and not isinstance(step, ReopenSlurm)):
            return None
        if has_slurm(facts.pool) or isinstance(step, Evict):
            self._same(facts)
        try:
            if not isinstance(step, Evict):
                status = act_in_slurm(self._workloads, facts, step, self._clock)
                if status is not None:
                    self._write(facts, body, status, self._clock())
            elif facts.server is not None:
                held = self._workloads.evict(facts.server, facts.pool, spare=step.spare, force=step.force)
                following = after_eviction(facts, held, self._clock())
                if isinstance(following, WriteStatus):
                    self._write(facts, body, following.status, self._clock())
                return 3.0 if held else 0.5
        except Conflict:
            raise
        except (Refused, Retryable) as error:
            self._say_slurm_waits(facts, body, str(error))
            raise
        return None

    def _say_slurm_waits(self, facts: MaintenanceFacts, body: Object, words: str) -> None:
        status = facts.maintenance.status
        if not any(b.kind == "Slurm" for b in status.blockers):
            blocked = [(b.kind, b.name, b.message) for b in status.blockers]
            blocked.append(("Slurm" if has_slurm(facts.pool) else "Server", facts.server_name, words))
            self._write(facts, body, set_blockers(status, blocked, self._clock()), self._clock())

    def _wait(self, facts: MaintenanceFacts, body: Object, step: Wait) -> float:
        if step.warn is None or facts.server is None or facts.pool is None:
            return step.seconds
        self._same(facts)
        told = self._workloads.warn(facts.server, facts.pool, step.warn, close_reason(facts.maintenance.name))
        if facts.maintenance.status.warned_time is None or facts.maintenance.status.phase == "Claiming":
            now = self._clock()
            jobs = quantity(told, "job was told that it may", "jobs were told that they may")
            words = f"{jobs} go on until {rfc3339_micro(step.warn)}"
            first = facts.maintenance.status.warned_time or rfc3339_micro(now)
            status = replace(facts.maintenance.status, warned_time=first)
            self._write(facts, body, note(status, now, "Warned", words), now)
            return 0.5
        return step.seconds

    def _write(self, facts: MaintenanceFacts, body: Object, status: MaintenanceStatus, now: datetime) -> None:
        before = facts.maintenance.status
        with self._own.written_on(facts.server_name, of(Maintenance), body), _gone_is_conflict():
            written = self._client.apply_status(
                Maintenance,
                facts.maintenance.name,
                to_json(status),
                manager=MANAGER,
                resource_version=body["metadata"]["resourceVersion"],
            )
        self._own.note(facts.server_name, of(Maintenance), written)
        if before.phase != status.phase:
            log.info("maintenance went on", maintenance=facts.maintenance.name, phase=status.phase, was=before.phase)
        tell_events(self._events, body, facts.node.body if facts.node is not None else None, before, status)
        if self._metrics is not None:
            tell_metrics(self._metrics, before, status, now)

    def _same(self, facts: MaintenanceFacts) -> None:
        """Raises: Conflict if the Maintenance is no longer the one that was decided on."""
        with _gone_is_conflict():
            current = self._client.get(of(Maintenance), facts.maintenance.name)
        if current["metadata"]["resourceVersion"] != facts.maintenance.metadata.resource_version:
            raise Conflict(f"Maintenance '{facts.maintenance.name}' was written by somebody else", after_seconds=0.1)

    def _finalize(self, maintenance: Maintenance, body: Object, *, present: bool) -> None:
        others = [f for f in maintenance.metadata.finalizers if f != RELEASE_FINALIZER]
        wanted = [*others, RELEASE_FINALIZER] if present else others
        metadata = {"resourceVersion": body["metadata"]["resourceVersion"], "finalizers": wanted or None}
        with _gone_is_conflict():
            written = self._client.patch(of(Maintenance), maintenance.name, {"metadata": metadata}, manager=MANAGER)
        if present:  # without it, one that is to be deleted is gone
            self._own.note(maintenance.spec.server_ref, of(Maintenance), written)

    def set_taint(self, node: NodeView, value: str | None, effect: MaintenanceEffect = "NoSchedule") -> None:
        """Ours alone is put on, or taken off; the others are written back as they were read. An agent whose server is
        open by that to new jobs is no longer told to reboot it."""
        taints = [taint for taint in node.taints if taint.get("key") != MAINTENANCE_TAINT]
        if value is not None:
            taints.append({"key": MAINTENANCE_TAINT, "value": value, "effect": effect})
        changes: dict[str, Any] = {_TAINTS: taints or None}
        stages = node.intent is not None and node.intent.action == "Stage"
        if node.has_intent and (value is None or (effect != "NoSchedule" and not stages)):
            changes[_INTENT] = None
        self._patch_node(node, changes)

    def set_intent(self, node: NodeView, text: str | None) -> None:
        """Only while the server is closed, or open, as it was seen: whoever led before must tell no agent anything
        that was taken back."""
        self._patch_node(node, {_INTENT: text})

    def set_conditions(self, node: NodeView, conditions: tuple[NodeCondition, ...]) -> None:
        """An answer to a request is only for the request that was seen. What is said of a Maintenance is ours alone,
        and set by its type whatever else is written to the Node; what is out of date is said anew by the next step."""
        patch, strategic = conditions_patch(node.body, conditions, self._clock())
        write = self._client.strategic_patch if strategic else self._client.patch
        ours = strategic and all(c.type in MAINTENANCE_CONDITIONS for c in conditions)
        patch["metadata"] = {"uid": node.uid}
        if not ours:
            patch["metadata"]["resourceVersion"] = node.body["metadata"]["resourceVersion"]
        with self._own.written_on(node.name, NODES, node.body), _gone_is_conflict():
            written = write(NODES, node.name, patch, subresource="status", manager=MANAGER)
        self._own.note(node.name, NODES, written)

    def _patch_node(self, node: NodeView, changes: dict[str, Any]) -> None:
        with self._own.written_on(node.name, NODES, node.body), _gone_is_conflict():
            written = self._client.patch_seen(NODES, node.body, changes, relies_on=[_TAINTS, _INTENT], manager=MANAGER)
        self._own.note(node.name, NODES, written)

    def create(self, server: str, requestor: Requestor, names: list[str]) -> None:
        """A new Maintenance. Raises: Conflict if somebody else made one of this server."""
        created = file_maintenance(self._client, server, requestor, names)
        self._own.note(server, of(Maintenance), created)
        name = created["metadata"]["name"]
        log.info("maintenance was filed", maintenance=name, requestor=requestor.name, action=requestor.action)

    def set_requestors(self, maintenance: Maintenance, requestors: tuple[Requestor, ...]) -> None:
        """Write the list back under the resourceVersion under which it was read."""
        patch = {
            "metadata": {"resourceVersion": maintenance.metadata.resource_version},
            "spec": {"requestors": [to_json(r) for r in requestors]},
        }
        with _gone_is_conflict():
            written = self._client.patch(of(Maintenance), maintenance.name, patch, manager=MANAGER)
        self._own.note(maintenance.spec.server_ref, of(Maintenance), written)

    def is_asked(self, server: str, requestor: str) -> bool:
        """Whether the Node asks by the condition of that requestor, past every cache: one may have lost its watch, and
        what another leader takes in meanwhile would be withdrawn again and again."""
        node = read_node(self._client.find(NODES, server))
        return node is not None and CONDITION_OF.get(requestor, "") in read_requests(node)

    def is_under_way(self, name: str) -> bool:
        """Whether the Maintenance of that name is there now, and not over."""
        found = self._client.find(of(Maintenance), name)
        return found is not None and (found.get("status") or {}).get("phase") not in FINAL_PHASES

    def delete(self, maintenance: Maintenance) -> None:
        self._client.delete(of(Maintenance), maintenance.name, uid=maintenance.metadata.uid)


@contextmanager
def _gone_is_conflict() -> Iterator[None]:
    """What was decided on is gone, and a cache will say so."""
    try:
        yield
    except NotFound as error:
        raise Conflict(str(error), after_seconds=0.1) from error
