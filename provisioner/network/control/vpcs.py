"""VPCs, SecurityGroups and the NetworkPool, one at a time: VNIs are claimed, and all of them told where they stand."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import Final

from provisioner.api import VPC, NetworkClaim, NetworkPool, SecurityGroup, VPCAttachment
from provisioner.api.machinery.codec import decode_shared, to_json
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.network.network_pool import THE_POOL, NetworkPoolStatus
from provisioner.api.network.security_group import SecurityGroupStatus
from provisioner.cluster.own_writes import BEHIND_SECONDS
from provisioner.cluster.reconciler import Said, news_of
from provisioner.cluster.source import Object, look_up
from provisioner.network.control.claims.claimer import Claimer
from provisioner.network.control.claims.wanted import FindClaim, WantedClaims, want_vni
from provisioner.network.control.compile.allocate import count_free
from provisioner.network.control.compile.peers import held_by_peers, peer_trouble
from provisioner.network.control.compile.security import missing_of
from provisioner.network.control.compile.trouble import Trouble
from provisioner.network.control.compile.view import route_trouble
from provisioner.network.control.records.informers import key_of
from provisioner.network.control.records.shared import NetworkParts, NetworkReconciler
from provisioner.network.control.records.writes import MANAGER
from provisioner.network.control.report.vpc import is_enforced, vpc_status
from provisioner.rules.ownership import owned_by

# What is said of the NetworkPool: pure.


def pool_status(pool: NetworkPool, claims: Iterable[NetworkClaim], now: datetime) -> NetworkPoolStatus:
    """The whole status. claims: those of VNIs."""
    found = list(claims)
    released = sum(1 for each in found if each.status.released_time is not None)
    free = count_free(pool.spec.vni_ranges, (int(each.spec.value) for each in found))
    message = f"{free} identifiers are free"
    if not free:
        message = f"all identifiers are in use, {released} of them by VPCs that are gone: add a range to spec.vniRanges"
    reason = "Available" if free else "Exhausted"
    return NetworkPoolStatus(
        taken_vnis=len(found) - released,
        quarantined_vnis=released,
        free_vnis=free,
        conditions=(condition_of(pool, "Ready", free > 0, reason, message, now),),
    )


# What is said of a SecurityGroup: pure.

MOST_NAMED: Final = 3


def group_status(group: SecurityGroup, attachments: Iterable[VPCAttachment], now: datetime) -> SecurityGroupStatus:
    """The whole status. attachments: those for which it holds."""
    found = sorted(attachments, key=lambda each: each.name)
    waiting = [each.name for each in found if not is_enforced(each)]
    reason, message = "Unused", "no attachment or VPC names it"
    if waiting:
        named = ", ".join(waiting[:MOST_NAMED]) + (", …" if len(waiting) > MOST_NAMED else "")
        reason = "WaitsForAttachments"
        message = f"not enforced for {len(waiting)} of {len(found)} attachments ({named}): their conditions tell why"
    elif found:
        reason, message = "Enforced", f"the DPUs have confirmed it for every attachment ({len(found)})"
    return SecurityGroupStatus(
        attachments=len(found), conditions=(condition_of(group, "Ready", not waiting, reason, message, now),)
    )


RETRY_SECONDS: Final = 15.0
"""What waits for something of others is looked at so often, whatever the caches tell."""


class VPCs(NetworkReconciler):
    """Reconciles VPCs, by namespace/name: claims their VNIs, and says where they stand."""

    owned = owned_by(MANAGER, VPC)

    def __init__(self, shared: NetworkParts) -> None:
        super().__init__(shared, shared.facts.caches.vpcs)
        self._claimer = Claimer(shared.cluster, shared.facts.caches.claims, self.own, shared.clock)
        self.controller = shared.controller("network-vpcs", self.reconcile)

    def decide(self, key: str, body: Object) -> Said | float:
        vpc = decode_shared(VPC, body)
        wanted, has_acted = self._claimer.bring(key, vpc, partial(self._want, vpc))
        if has_acted:
            return BEHIND_SECONDS
        trouble = wanted.trouble or self._trouble(key, vpc)
        attachments = list(self._facts.attachments_of(key))
        peers = held_by_peers(vpc, self._facts.vpc)
        status = vpc_status(vpc, self._facts.vni_of(vpc), attachments, peers, trouble, self._now())
        before = find_condition(vpc.status.conditions, "Ready")
        return Said(
            status=to_json(status),
            events=news_of(before, status.conditions[0], is_calm=is_waiting),
            requeue_after_seconds=RETRY_SECONDS if trouble is not None else None,
        )

    def _want(self, vpc: VPC, find: FindClaim) -> WantedClaims:
        pool = look_up(NetworkPool, self._facts.caches.pools, THE_POOL)
        held = self._facts.vnis_of(vpc)
        return want_vni(vpc, pool, held, find, self._facts.vni_claims() if not held else ())

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


class Groups(NetworkReconciler):
    """Reconciles SecurityGroups, by namespace/name: says for whom they hold."""

    owned = owned_by(MANAGER, SecurityGroup)

    def __init__(self, shared: NetworkParts) -> None:
        super().__init__(shared, shared.facts.caches.groups)
        self.controller = shared.controller("network-groups", self.reconcile)

    def decide(self, key: str, body: Object) -> Said:
        group = decode_shared(SecurityGroup, body)
        return Said(status=to_json(group_status(group, self._holds_for(key).values(), self._now())))

    def _holds_for(self, key: str) -> dict[str, VPCAttachment]:
        lookups = self._facts.lookups
        found = {
            each["metadata"]["name"]: decode_shared(VPCAttachment, each)
            for each in lookups.attachments_by_group.get(key)
            if not each["metadata"].get("deletionTimestamp")
        }
        for vpc in lookups.vpcs_by_group.get(key):
            found |= {each.name: each for each in self._facts.attachments_of(key_of(vpc))}
        return found


class Pools(NetworkReconciler):
    """Reconciles the NetworkPool: says how much of it is in use."""

    owned = owned_by(MANAGER, NetworkPool)

    def __init__(self, shared: NetworkParts) -> None:
        super().__init__(shared, shared.facts.caches.pools)
        self.controller = shared.controller("network-pools", self.reconcile)

    def decide(self, key: str, body: Object) -> Said:
        pool = decode_shared(NetworkPool, body)
        return Said(status=to_json(pool_status(pool, self._facts.vni_claims(), self._now())))


def is_waiting(reason: str) -> bool:
    """Whether a condition Ready that does not hold has only to be waited for."""
    return reason.startswith("WaitsFor")
