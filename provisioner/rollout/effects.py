"""What a rollout writes: entries in Maintenances, assigned Images and failures of Servers, the status of NodePools.

Each write says on what it was decided, so that of two leaders one fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import structlog

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.errors import Conflict, NotFound
from provisioner.api.machinery.meta import Resource
from provisioner.api.nodes.maintenance import Requestor
from provisioner.api.servers.server_status import UpgradeFailure
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events, Happened
from provisioner.cluster.own_writes import OwnWrites
from provisioner.cluster.resources import of
from provisioner.rollout.course import Assignment
from provisioner.rollout.requests import RequestWrite
from provisioner.rollout.standing import REQUESTOR
from provisioner.rules.filing import file_maintenance
from provisioner.rules.requests import place

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-rollout"

Json = Mapping[str, Any]


class RolloutEffects:
    """The hands of the rollout. Every method raises Conflict or Retryable where a later decision is to be made anew."""

    def __init__(self, cluster: Cluster, events: Events, own: OwnWrites) -> None:
        self._cluster = cluster
        self._events = events
        self._own = own

    def ask(self, act: RequestWrite, maintenances: Iterable[Maintenance]) -> None:
        """Write the rollout's entry into the Maintenance of a server, take it out, or make a Maintenance for it."""
        known = {m.name: m for m in maintenances}
        if act.own is not None:
            self._set_entry(act.own, act.entry)
        elif act.entry is not None:
            placed = place(known.values(), act.server, act.entry)
            if placed.name in known:
                self._set_entry(known[placed.name], act.entry)
            else:
                self._create(known, act.server, act.entry)

    def _create(self, names: Iterable[str], server: str, entry: Requestor) -> None:
        created = file_maintenance(self._cluster, server, entry, names, manager=MANAGER)
        self._own.note(server, of(Maintenance), created)
        name = created["metadata"]["name"]
        log.info("maintenance was filed", maintenance=name, server=server, turn=entry.turn, image=entry.image_ref)

    def _set_entry(self, maintenance: Maintenance, entry: Requestor | None) -> None:
        others = [r for r in maintenance.spec.requestors if r.name != REQUESTOR]
        wanted = others if entry is None else [*others, entry]
        server, version = maintenance.spec.server_ref, maintenance.metadata.resource_version
        patch = {"metadata": {"resourceVersion": version}, "spec": {"requestors": [to_json(r) for r in wanted]}}
        copy = {"metadata": {"name": maintenance.name, "resourceVersion": version}}
        with self._own.written_on(server, of(Maintenance), copy):
            try:
                written = self._cluster.patch(of(Maintenance), maintenance.name, patch, manager=MANAGER)
            except NotFound as error:
                raise Conflict(str(error), after_seconds=0.1) from error
        self._own.note(server, of(Maintenance), written)
        turn = entry.turn if entry is not None else None
        log.info("turn of a server", maintenance=maintenance.name, server=server, turn=turn or "withdrawn")

    def assign(self, body: Json, assigned: Assignment, failure: UpgradeFailure | None) -> None:
        """The part of a Server's status that the rollout owns."""
        wanted = {
            "assignedImageRef": assigned.image,
            "assignedNodePoolRef": assigned.pool,
            "upgradeFailure": to_json(failure) if failure is not None else None,
        }
        status = {key: value for key, value in wanted.items() if value is not None}
        before = (body.get("status") or {}).get("upgradeFailure")
        if self._apply(Server, body, status) and failure is not None and wanted["upgradeFailure"] != before:
            words = f"failed with Image '{failure.image_ref}': {failure.message}"
            self._events.record(body, "Warning", "UpgradeFailed", words[:1024])

    def tell(self, body: Json, status: Json) -> None:
        """The status of a NodePool, with an Event for what an operator should hear of."""
        if self._apply(NodePool, body, status):
            for news in _news((body.get("status") or {}).get("rollout"), status.get("rollout")):
                self._events.record(body, news.type, news.reason, news.message[:1024])

    def _apply(self, kind: type[Resource], body: Json, status: Json) -> bool:
        """Our part of the status of `body`, under its resourceVersion; False if it is gone."""
        metadata, type_ = body["metadata"], of(kind)
        with self._own.written_on(metadata["name"], type_, body):
            try:
                written = self._cluster.apply_status(
                    kind, metadata["name"], status, manager=MANAGER, resource_version=metadata["resourceVersion"]
                )
            except NotFound:
                return False
        self._own.note(metadata["name"], type_, written)
        return True


def _news(before: Json | None, after: Json | None) -> Iterable[Happened]:
    if after is None:
        return
    is_new = before is None or before.get("startedTime") != after["startedTime"]
    known: Json = {} if is_new or before is None else before
    if is_new and not after.get("movedTime"):
        came_from, image = after.get("previousImageRef"), after["imageRef"]
        words = f"move from Image '{came_from}' to '{image}'" if came_from != image else f"go back to Image '{image}'"
        yield Happened(type="Normal", reason="RolloutStarted", message=f"servers {words}")
    if after.get("movedTime") and after["movedTime"] != known.get("movedTime"):
        words = f"servers of other NodePools move in, as their jobs end, with Image '{after['imageRef']}'"
        yield Happened(type="Normal", reason="ServersMoveIn", message=words)
    if after.get("stopped") and not known.get("stopped"):
        yield Happened(type="Warning", reason="RolloutStopped", message=after["stopped"]["message"])
    if known.get("stopped") and not after.get("stopped"):
        words = f"a person decided that Image '{after['imageRef']}' is tried again"
        yield Happened(type="Normal", reason="RolloutResumed", message=words)
    if not is_new and after.get("passed", 0) > known.get("passed", 0):
        words = f"Image '{after['imageRef']}': {after.get('message') or 'a stage is over'}"
        yield Happened(type="Normal", reason="RolloutStagePassed", message=words)
    if after.get("completedTime") and not known.get("completedTime"):
        words = f"Image '{after['imageRef']}': {after.get('message')}"
        yield Happened(type="Normal", reason="RolloutCompleted", message=words)
