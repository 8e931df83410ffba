"""Gives VPCs their P_Keys, and takes back those that nobody uses: the effects of `pkeys`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final

import structlog

from provisioner.api import VPC, InfiniBandNetwork, NetworkClaim, NetworkPool
from provisioner.api.machinery.codec import decode, decode_shared, encode, to_json
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.machinery.errors import Conflict
from provisioner.api.machinery.meta import ObjectMeta, rfc3339
from provisioner.api.network.network_claim import ClaimHolder, NetworkClaimSpec, NetworkClaimStatus, pkey_claim
from provisioner.api.network.network_pool import THE_POOL
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.own_writes import BEHIND_SECONDS
from provisioner.cluster.reconciler import Said, StatusReconciler
from provisioner.cluster.resources import of
from provisioner.cluster.source import Object, look_up
from provisioner.network.infiniband.compile import LEFT_OUT
from provisioner.network.infiniband.follow import InfiniBandInformers
from provisioner.network.infiniband.pkeys import (
    MAX_WAITS,
    choose_pkey,
    count_of,
    count_pkeys,
    decide_release,
    held_pkeys,
    holder_of,
    pkey_of,
    wants_partition,
)
from provisioner.rules.ownership import owned_by
from provisioner.rules.shares import may_take

log = structlog.get_logger(__name__)

Clock = Callable[[], datetime]

MANAGER: Final = "provisioner-infiniband"
ASSIGNED: Final = "PKeyAssigned"
EXHAUSTED_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 5.0
"""A claim that waits for fabrics is looked at so often, whatever happens."""


class PKeys:
    """Claims of P_Keys, as the cache has them and as this process has just made them, and which VPCs lack ports.

    `tell` is called with the keys of VPCs of which that changed. Usable from several threads.
    """

    def __init__(self, informers: InfiniBandInformers, tell: Callable[[str], None]) -> None:
        self._informers = informers
        self._tell = tell
        self._lock = threading.Lock()
        self._made: dict[str, NetworkClaim] = {}
        self._left_out: dict[str, frozenset[str]] = {}

    def claims(self) -> list[NetworkClaim]:
        """Those of P_Keys."""
        cached = {
            body["metadata"]["name"]: decode_shared(NetworkClaim, body)
            for body in self._informers.claims.items()
            if body["spec"].get("type") == "PKey"
        }
        with self._lock:
            for name in cached.keys() & self._made.keys():
                del self._made[name]
            return [*cached.values(), *self._made.values()]

    def note(self, name: str, claim: NetworkClaim | None) -> None:
        with self._lock:
            if claim is None:
                self._made.pop(name, None)
            else:
                self._made[name] = claim

    def note_left_out(self, fabric: str, vpcs: Iterable[str]) -> None:
        """Which VPCs lack ports on a fabric, as it was just compiled; those that are others now are told."""
        before, after = self._left_out.get(fabric, frozenset()), frozenset(vpcs)
        self._left_out[fabric] = after
        for key in before ^ after:
            self._tell(key)

    def lacking(self, vpc: str) -> list[str]:
        """Fabrics that lack ports of the VPC."""
        return sorted(fabric for fabric, vpcs in self._left_out.copy().items() if vpc in vpcs)


class Assignments(StatusReconciler[Said]):
    """Sees that each VPC, by namespace/name, has a P_Key if it wants one."""

    owned = owned_by(MANAGER, VPC)

    def __init__(self, cluster: Cluster, informers: InfiniBandInformers, events: Events, *, clock: Clock) -> None:
        super().__init__(cluster, informers.vpcs, events, caches=informers.all, now=clock)
        self._informers = informers
        self.controller = Controller("infiniband-pkeys", self.reconcile)
        self.pkeys = self._pkeys = PKeys(informers, self.controller.queue.add)

    def decide(self, key: str, body: Object) -> Said:
        vpc = decode_shared(VPC, body)
        if not wants_partition(vpc):
            if vpc.status.pkey is None and find_condition(vpc.status.conditions, ASSIGNED) is None:
                return Said()  # nothing is said of a VPC that never asked
            return self._said(vpc, None, False, "NotWanted", "spec.infiniband asks for no partition.")
        claims = self._pkeys.claims()
        pkey = held_pkeys(claims).get(holder_of(vpc))
        if pkey is None:
            pool = look_up(NetworkPool, self._informers.pools, THE_POOL)
            ranges = pool.spec.pkey_ranges if pool is not None else ()
            pkey = choose_pkey(ranges, {taken for claim in claims if (taken := pkey_of(claim)) is not None})
            if pkey is None:
                remedy = "add a range to spec.pkeyRanges of NetworkPool default, or delete VPCs that nobody uses"
                words = f"All P_Keys of the NetworkPool are taken: {remedy}."
                return self._said(vpc, None, False, "NoPKeyFree", words, EXHAUSTED_SECONDS)
            own, free = count_of(vpc.metadata.namespace, claims), count_pkeys(ranges, claims).free
            if not may_take(own, free):
                words = (
                    f"Namespace {vpc.metadata.namespace} has {own} P_Keys already, {free} of the NetworkPool are left, "
                )
                remedy = "delete a VPC, or have the administrators add a range to spec.pkeyRanges"
                words = f"{words}and no tenant takes more than are left for all: {remedy}."
                return self._said(vpc, None, False, "PKeyShareExhausted", words, EXHAUSTED_SECONDS)
            self._claim(pkey, holder_of(vpc))
        if lacking := self._pkeys.lacking(key):
            words = f"Ports are left out of its partition on InfiniBandFabric {', '.join(lacking)}: {LEFT_OUT}."
            remedy = "Have fewer VPCs with partitions, or fewer servers attached to them"
            return self._said(vpc, pkey, False, "PortsLeftOut", f"{words} {remedy}.")
        return self._said(vpc, pkey, True, "Claimed", f"The claim {pkey_claim(pkey)} is this VPC's.")

    def _claim(self, pkey: int, holder: ClaimHolder) -> None:
        spec = NetworkClaimSpec(type="PKey", value=f"0x{pkey:04x}", holder=holder)
        body = encode(NetworkClaim(metadata=ObjectMeta(name=pkey_claim(pkey)), spec=spec))
        try:
            made = self._cluster.create(of(NetworkClaim), body, manager=MANAGER)
        except Conflict:
            # Somebody else has it, whom the cache does not show yet.
            there = self._cluster.find(of(NetworkClaim), pkey_claim(pkey))
            if there is not None:
                self._pkeys.note(pkey_claim(pkey), decode(NetworkClaim, there))
            raise
        self._pkeys.note(pkey_claim(pkey), decode(NetworkClaim, made))
        log.info("p_key was claimed", pkey=f"0x{pkey:04x}", namespace=holder.namespace, vpc=holder.name)

    def _said(
        self, vpc: VPC, pkey: int | None, status: bool, reason: str, message: str, again_in_seconds: float | None = None
    ) -> Said:
        condition = condition_of(vpc, ASSIGNED, status, reason, message, self._now())
        said: dict[str, Any] = {"conditions": [to_json(condition)]}
        if pkey is not None:
            said["pkey"] = f"0x{pkey:04x}"
        return Said(status=said, requeue_after_seconds=again_in_seconds)


class PKeyReleases(StatusReconciler[Said]):
    """Takes claims of P_Keys back, by name, once their holders are gone and no port has the P_Key."""

    owned = owned_by(MANAGER, NetworkClaim)

    def __init__(
        self, cluster: Cluster, informers: InfiniBandInformers, pkeys: PKeys, events: Events, *, clock: Clock
    ) -> None:
        super().__init__(cluster, informers.claims, events, caches=informers.all, now=clock)
        self._informers = informers
        self._pkeys = pkeys
        self.controller = Controller("infiniband-releases", self.reconcile)

    def leave(self, key: str, body: Object | None) -> float | None:
        if body is None:
            return None
        return self.advance(key, body) if self.shows_own_writes(key) else BEHIND_SECONDS

    def decide(self, key: str, body: Object) -> Said | float | None:
        claim = decode_shared(NetworkClaim, body)
        if pkey_of(claim) is None:
            return None
        holder, released = claim.spec.holder, claim.status.released_time
        vpc = look_up(VPC, self._informers.vpcs, f"{holder.namespace}/{holder.name}")
        networks = [decode_shared(InfiniBandNetwork, each) for each in self._informers.networks.items()]
        held = held_pkeys(self._pkeys.claims())
        release = decide_release(claim, vpc, networks, held)
        if release.is_wanted:
            return None
        if released is None and decide_release(claim, self._holder_now(holder), (), held).is_wanted:
            return None
        if not release.is_over or released is None:
            since, waits = released or rfc3339(self._now()), tuple(release.waits_for[:MAX_WAITS])
            status = to_json(NetworkClaimStatus(released_time=since, waits_for=waits))
            return Said(status=status, requeue_after_seconds=WAIT_SECONDS)
        # What is given to another VPC at once is asked of the API server itself, not of a cache.
        now, networks = self._holder_now(holder), self._cluster.read_all(InfiniBandNetwork)
        if not decide_release(claim, now, networks, held).is_over:
            return WAIT_SECONDS
        metadata = claim.metadata
        self._cluster.delete(of(NetworkClaim), key, uid=metadata.uid, resource_version=metadata.resource_version)
        self._pkeys.note(key, None)
        log.info("p_key was released", claim=key)
        return None

    def _holder_now(self, holder: ClaimHolder) -> VPC | None:
        """What the API server itself has by the holder's name, which a cache may show late: a claim that was let go of
        once counts no more."""
        found = self._cluster.find(of(VPC), holder.name, namespace=holder.namespace)
        return decode(VPC, found) if found else None


class PoolCounts(StatusReconciler[Said]):
    """How many P_Keys of the NetworkPool are taken, wait and are free."""

    owned = owned_by(MANAGER, NetworkPool)

    def __init__(
        self, cluster: Cluster, informers: InfiniBandInformers, pkeys: PKeys, events: Events, *, clock: Clock
    ) -> None:
        super().__init__(cluster, informers.pools, events, caches=informers.all, now=clock)
        self._pkeys = pkeys
        self.controller = Controller("infiniband-pool", self.reconcile)

    def decide(self, key: str, body: Object) -> Said:
        counts = count_pkeys(decode_shared(NetworkPool, body).spec.pkey_ranges, self._pkeys.claims())
        return Said(
            status={"takenPkeys": counts.taken, "quarantinedPkeys": counts.quarantined, "freePkeys": counts.free}
        )
