"""The effects of the list of credentials: whatever became of the Servers of a shard is written at once.

Nothing is remembered beside the objects. Who dies after a certificate was signed and before it stands in the Server's
status is followed by an approver that reads all requests again; who dies before it is on the list, by a lister that
reads all Servers again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import structlog

from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.own_writes import BEHIND_SECONDS, OwnWrites
from provisioner.cluster.reconciler import when_synced
from provisioner.cluster.resources import CREDENTIALS, ROLE_BINDINGS, ROLES, ResourceType
from provisioner.cluster.source import Caches, Lookup, Source, when_changed
from provisioner.join.credentials.listed import (
    ALL_SHARDS,
    binding_of,
    next_end,
    read_entries,
    role_of,
    says_the_same,
    settle,
    shard_of,
)

log = structlog.get_logger()

LISTERS: Final = 4


@dataclass(frozen=True, kw_only=True)
class CredentialSources(Caches):
    """What the lister follows: all Servers, and Roles and RoleBindings of the list's namespace."""

    servers: Source
    roles: Source
    bindings: Source


@dataclass(frozen=True, kw_only=True)
class CredentialLister:
    """Reconciles one Role of the list after the other."""

    cluster: Cluster
    sources: CredentialSources
    now: Callable[[], datetime]

    @cached_property
    def by_shard(self) -> Lookup:
        return self.sources.servers.index(lambda server: [shard_of(server["metadata"]["name"])])

    @cached_property
    def own(self) -> OwnWrites:
        return OwnWrites(self.now)

    def reconcile(self, shard: str) -> float | None:
        """Write the Role of `shard` as its Servers are. Raises: Conflict, Retryable, Refused."""
        if not self.own.are_seen(shard, self._find):
            return BEHIND_SECONDS
        role, now = self._find(ROLES, shard), self.now()
        entries = settle(read_entries(role), self.by_shard.get(shard), now)
        wanted = role_of(shard, entries)
        if role is None and not entries:
            return None
        if role is None:
            self.own.note(shard, ROLES, self.cluster.create(ROLES, wanted))
        elif not says_the_same(role, wanted):
            self._replace(shard, role, wanted)
        if self._find(ROLE_BINDINGS, shard) is None:
            self.own.note(shard, ROLE_BINDINGS, self.cluster.create(ROLE_BINDINGS, binding_of(shard)))
        return next_end(entries, now)

    def _replace(self, shard: str, role: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
        metadata = wanted["metadata"] | {"resourceVersion": role["metadata"]["resourceVersion"]}
        with self.own.written_on(shard, ROLES, role):
            written = self.cluster.replace(ROLES, {**wanted, "metadata": metadata})
        self.own.note(shard, ROLES, written)
        log.info("credentials listed", role=shard, servers=len(read_entries(wanted)))

    def _find(self, type_: ResourceType, name: str) -> Mapping[str, Any] | None:
        source = self.sources.roles if type_ == ROLES else self.sources.bindings
        return source.get(f"{CREDENTIALS}/{name}")


def build_credential_controller(
    cluster: Cluster, sources: CredentialSources, now: Callable[[], datetime]
) -> Controller:
    """The controller of the list. The caller runs and stops it."""
    lister = CredentialLister(cluster=cluster, sources=sources, now=now)
    controller = Controller("join-credentials", when_synced(sources.all, lister.reconcile), workers=LISTERS)

    def list_changed(key: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
        shard = key.partition("/")[2]
        if shard in ALL_SHARDS:
            controller.queue.add(shard)

    sources.servers.subscribe(when_changed(_of_interest, lambda name: controller.queue.add(shard_of(name))))
    sources.roles.subscribe(list_changed)
    sources.bindings.subscribe(list_changed)
    return controller


def _of_interest(server: Mapping[str, Any] | None) -> tuple[Any, ...] | None:
    """Progress and conditions change a Server often and mean nothing here."""
    if server is None:
        return None
    join = (server.get("status") or {}).get("join") or {}
    return (server["spec"].get("acceptance"), join.get("certificateTokenID"), join.get("credentials"))
