"""What the power controllers write: `status.power`, the condition PoweredOn, Events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.machinery.meta import Condition
from provisioner.api.servers.server import PowerStatus, Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.events import Events, EventType
from provisioner.cluster.own_writes import OwnWrites
from provisioner.cluster.resources import of, regarding
from provisioner.power.decide import PoweredOn

MANAGER: Final = "provisioner-power"


class Record:
    """Writes only what changed."""

    def __init__(self, cluster: Cluster, recorder: Events, *, now: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self._now = now
        self._own = OwnWrites(now)

    def write(self, server: Server, power: PowerStatus | None, said: PoweredOn, *, acted: bool = False) -> None:
        """Record both, unless `server` says so already. What was only seen is written if `server` is still as it was;
        what was done (`acted`) has to be on record whatever else was written. Raises: NotFound; Retryable, Conflict.
        """
        condition = self.condition(server, said)
        if power == server.status.power and condition == find_condition(server.status.conditions, "PoweredOn"):
            return
        status: dict[str, Any] = {"conditions": [to_json(condition)]}
        if power is not None:
            status["power"] = to_json(power)
        version = None if acted else server.metadata.resource_version
        with self._own.written_on(server.name, of(Server), {"metadata": to_json(server.metadata)}):
            written = self._cluster.apply_status(Server, server.name, status, manager=MANAGER, resource_version=version)
        self._own.note(server.name, of(Server), written)

    def is_seen(self, name: str, cached: Mapping[str, Any] | None) -> bool:
        """Whether `cached` is the Server as it was last written here, or later."""
        return self._own.are_seen(name, lambda type_, key: cached)

    def condition(self, server: Server, said: PoweredOn) -> Condition:
        """The condition as it is written; its time changes only with its status."""
        return condition_of(server, "PoweredOn", said.status, said.reason, said.message, self._now())

    def tell(self, server: Server, type_: EventType, reason: str, message: str) -> None:
        """An Event of the Server."""
        self._recorder.record(regarding(server), type_, reason, message)

    def tell_once(self, server: Server, reason: str, message: str) -> None:
        """A warning Event, unless the condition has that reason already."""
        before = find_condition(server.status.conditions, "PoweredOn")
        if before is None or before.reason != reason:
            self.tell(server, "Warning", reason, message)
