"""VPCs, SecurityGroups and the NetworkPool, one at a time: VNIs are claimed, and all of them told where they stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from provisioner.api import VPC, NetworkClaim, NetworkPool, SecurityGroup, VPCAttachment
from provisioner.api.codec import decode_shared, to_json
from provisioner.api.conditions import find_condition
from provisioner.api.errors import NotFound, Retryable
from provisioner.api.meta import Resource
from provisioner.api.network_claim import ClaimHolder
from provisioner.api.network_pool import THE_POOL
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import RESYNC_SECONDS, Controller
from provisioner.cluster.events import Events
from provisioner.cluster.own_writes import BEHIND_SECONDS, OwnWrites
from provisioner.cluster.resources import ResourceType, of
from provisioner.cluster.source import Object, look_up
from provisioner.network.control.claims.claimer import MOST_ATTEMPTS, Claimer
from provisioner.network.control.claims.wanted import TakenVNIs, Wanted, want_vni
from provisioner.network.control.compile.peers import held_by_peers, peer_trouble
from provisioner.network.control.compile.security import missing_of
from provisioner.network.control.compile.view import route_trouble
from provisioner.network.control.facts import Facts
from provisioner.network.control.report.group import group_status
from provisioner.network.control.report.pool import pool_status
from provisioner.network.control.report.vpc import vpc_status
from provisioner.network.control.trouble import Trouble
from provisioner.network.control.writes import MANAGER

RETRY_SECONDS: Final = 15.0
"""What waits for something of others is looked at so often, whatever the caches tell."""


class VPCs:
    """Reconciles VPCs, by namespace/name."""

    def __init__(
        self,
        cluster: Cluster,
        facts: Facts,
        own: OwnWrites,
        events: Events,
        controller: Callable[..., Controller],
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._facts = facts
        self._own = own
        self._events = events
        self._clock = clock
        self._claimer = Claimer(cluster, own, clock)
        self.controller = controller("network-vpcs", self.reconcile)

    def reconcile(self, key: str) -> float | None:
        """Claim its VNI and say where it stands. Raises: Retryable, NeedsHuman."""
        caches = self._facts.caches
        if not caches.have_synced:
            return BEHIND_SECONDS
        body = caches.vpcs.get(key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        if not self._own.are_seen(key, lambda type_, name: self._look(key, type_, name)):
            return BEHIND_SECONDS
        vpc = decode_shared(VPC, body)
        wanted = self._claim(key, vpc)
        if wanted.claims or wanted.surplus:
            return BEHIND_SECONDS
        trouble = wanted.trouble or self._trouble(key, vpc)
        attachments = list(self._facts.attachments_of(key))
        peers = held_by_peers(vpc, self._facts.vpc)
        status = vpc_status(vpc, self._facts.vni_of(vpc), attachments, peers, trouble, self._clock())
        if to_json(status) != to_json(vpc.status):
            self._write(key, body, vpc, to_json(status))
        return RETRY_SECONDS if trouble is not None else RESYNC_SECONDS

    def _claim(self, key: str, vpc: VPC) -> Wanted:
        refused: dict[str, NetworkClaim] = {}
        wanted = self._want(vpc, refused)
        while (other := self._make(key, vpc, wanted)) is not None:
            refused[other.name] = other
            if len(refused) > MOST_ATTEMPTS:
                raise Retryable(f"VPC {key}: the last {MOST_ATTEMPTS} values were taken meanwhile")
            wanted = self._want(vpc, refused)
        for name in wanted.surplus:
            found = self._facts.caches.claims.get(name)
            if found is not None:
                self._claimer.release(key, found)
        return wanted

    def _want(self, vpc: VPC, refused: dict[str, NetworkClaim]) -> Wanted:
        def find(name: str) -> NetworkClaim | None:
            return refused.get(name) or look_up(NetworkClaim, self._facts.caches.claims, name)

        pool = look_up(NetworkPool, self._facts.caches.pools, THE_POOL)
        held = self._facts.vnis_of(vpc)
        return want_vni(vpc, pool, held, TakenVNIs(find), self._facts.vni_claims() if not held else ())

    def _make(self, key: str, vpc: VPC, wanted: Wanted) -> NetworkClaim | None:
        """Returns: the claim of another one that is in the way; None if all could be made."""
        metadata = vpc.metadata
        holder = ClaimHolder(kind="VPC", namespace=str(metadata.namespace), name=vpc.name, uid=str(metadata.uid))
        for want in wanted.claims:
            other = self._claimer.claim(key, want, holder)
            if other is not None:
                return other
        return None

    def _trouble(self, key: str, vpc: VPC) -> Trouble | None:
        view = self._facts.view(key)
        addresses = [address for each in view.endpoints for address in each.addresses] if view is not None else []
        missing = missing_of(
            vpc.spec.security_group_refs, self._facts.groups_in(vpc.metadata.namespace, vpc.spec.security_group_refs)
        )
        if missing:
            return Trouble(
                reason="SecurityGroupNotFound",
                message=f"there is no SecurityGroup '{missing[0]}', so that none of its attachments lets anything "
                "pass: make it, or take it out of spec.securityGroupRefs",
            )
        return peer_trouble(vpc, self._facts.vpc) or route_trouble(vpc, addresses)

    def _write(self, key: str, body: Object, vpc: VPC, status: Mapping[str, Any]) -> None:
        with self._own.written_on(key, of(VPC), body):
            try:
                written = self._cluster.apply_status(
                    VPC,
                    vpc.name,
                    status,
                    manager=MANAGER,
                    resource_version=vpc.metadata.resource_version,
                    namespace=vpc.metadata.namespace,
                )
            except NotFound:
                return
        self._own.note(key, of(VPC), written)
        before, after = find_condition(vpc.status.conditions, "Ready"), status["conditions"][0]
        if before is None or (before.status, before.reason) != (after["status"], after["reason"]):
            normal = after["status"] == "True" or after["reason"].startswith("WaitsFor")
            self._events.record(body, "Normal" if normal else "Warning", after["reason"], after["message"])

    def _look(self, key: str, type_: ResourceType, name: str) -> Object | None:
        caches = self._facts.caches
        return caches.vpcs.get(key) if type_ == of(VPC) else caches.claims.get(name)


class Groups:
    """Reconciles SecurityGroups, by namespace/name."""

    def __init__(
        self,
        cluster: Cluster,
        facts: Facts,
        controller: Callable[..., Controller],
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._facts = facts
        self._clock = clock
        self.controller = controller("network-groups", self.reconcile)

    def reconcile(self, key: str) -> float | None:
        """Say for whom it holds. Raises: Retryable."""
        if not self._facts.caches.have_synced:
            return BEHIND_SECONDS
        body = self._facts.caches.groups.get(key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        group = decode_shared(SecurityGroup, body)
        status = group_status(group, self._holds_for(key).values(), self._clock())
        _tell(self._cluster, SecurityGroup, group, to_json(status))
        return RESYNC_SECONDS

    def _holds_for(self, key: str) -> dict[str, VPCAttachment]:
        lookups = self._facts.lookups
        found = {
            each["metadata"]["name"]: decode_shared(VPCAttachment, each)
            for each in lookups.attachments_by_group.get(key)
            if not each["metadata"].get("deletionTimestamp")
        }
        for vpc in lookups.vpcs_by_group.get(key):
            name = f"{vpc['metadata']['namespace']}/{vpc['metadata']['name']}"
            found |= {each.name: each for each in self._facts.attachments_of(name)}
        return found


class Pools:
    """Reconciles the NetworkPool."""

    def __init__(
        self,
        cluster: Cluster,
        facts: Facts,
        controller: Callable[..., Controller],
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._facts = facts
        self._clock = clock
        self.controller = controller("network-pools", self.reconcile)

    def reconcile(self, name: str) -> float | None:
        """Say how much of it is in use. Raises: Retryable."""
        if not self._facts.caches.have_synced:
            return BEHIND_SECONDS
        body = self._facts.caches.pools.get(name)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        pool = decode_shared(NetworkPool, body)
        status = pool_status(pool, self._facts.vni_claims(), self._clock())
        _tell(self._cluster, NetworkPool, pool, to_json(status))
        return RESYNC_SECONDS


def _tell(cluster: Cluster, kind: type[Resource], found: Any, status: Mapping[str, Any]) -> None:
    """Write a status that is only words, if it is another one."""
    if to_json(found.status) == status:
        return
    metadata = found.metadata
    try:
        cluster.apply_status(
            kind,
            metadata.name,
            status,
            manager=MANAGER,
            resource_version=metadata.resource_version,
            namespace=metadata.namespace,
        )
    except NotFound:
        return
