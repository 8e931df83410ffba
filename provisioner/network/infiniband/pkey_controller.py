"""Gives VPCs their P_Keys, and takes back those that nobody uses: the effects of `pkeys`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import structlog

from provisioner.api import VPC, InfiniBandNetwork, NetworkClaim, NetworkPool
from provisioner.api.codec import decode, decode_shared, encode, to_json
from provisioner.api.conditions import condition_of
from provisioner.api.errors import Conflict, NotFound
from provisioner.api.meta import ConditionStatus, ObjectMeta, rfc3339
from provisioner.api.network_claim import ClaimHolder, NetworkClaimSpec, pkey_claim
from provisioner.api.network_pool import THE_POOL
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.resources import of
from provisioner.cluster.source import Source, look_up
from provisioner.network.infiniband.compile import LEFT_OUT
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
from provisioner.rules.shares import may_take

log = structlog.get_logger(__name__)

MANAGER: Final = "provisioner-infiniband"
ASSIGNED: Final = "PKeyAssigned"
UNSYNCED_SECONDS: Final = 0.2
EXHAUSTED_SECONDS: Final = 60.0
WAIT_SECONDS: Final = 5.0
"""A claim that waits for fabrics is looked at so often, whatever happens."""


class PKeys:
    """Claims of P_Keys, as the cache has them and as this process has just made them. Usable from several threads."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        vpcs: Source,
        pools: Source,
        claims: Source,
        networks: Source,
        clock: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._vpcs, self._pools, self._claims, self._networks = vpcs, pools, claims, networks
        self._clock = clock
        self._lock = threading.Lock()
        self._made: dict[str, NetworkClaim] = {}
        self._left_out: dict[str, frozenset[str]] = {}
        self.vpcs = Controller("infiniband-pkeys", self.assign)
        self.releases = Controller("infiniband-releases", self.release)
        self.pool = Controller("infiniband-pool", self.count)

    @property
    def have_synced(self) -> bool:
        return all(each.has_synced for each in (self._vpcs, self._pools, self._claims, self._networks))

    def claims(self) -> list[NetworkClaim]:
        """Those of P_Keys."""
        cached = {
            body["metadata"]["name"]: decode_shared(NetworkClaim, body)
            for body in self._claims.items()
            if body["spec"].get("type") == "PKey"
        }
        with self._lock:
            for name in cached.keys() & self._made.keys():
                del self._made[name]
            return [*cached.values(), *self._made.values()]

    def _note(self, name: str, claim: NetworkClaim | None) -> None:
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
            self.vpcs.queue.add(key)

    def assign(self, key: str) -> float | None:
        """See that the VPC `namespace/name` has a P_Key if it wants one. Raises: Retryable, NeedsHuman."""
        if not self.have_synced:
            return UNSYNCED_SECONDS
        vpc = look_up(VPC, self._vpcs, key)
        if vpc is None or vpc.metadata.deletion_timestamp is not None:
            return None
        if not wants_partition(vpc):
            self._say(vpc, None, "False", "NotWanted", "spec.infiniband asks for no partition.")
            return None
        claims = self.claims()
        pkey = held_pkeys(claims).get(holder_of(vpc))
        if pkey is None:
            pool = look_up(NetworkPool, self._pools, THE_POOL)
            ranges = pool.spec.pkey_ranges if pool is not None else ()
            pkey = choose_pkey(ranges, {taken for claim in claims if (taken := pkey_of(claim)) is not None})
            if pkey is None:
                remedy = "add a range to spec.pkeyRanges of NetworkPool default, or delete VPCs that nobody uses"
                self._say(vpc, None, "False", "NoPKeyFree", f"All P_Keys of the NetworkPool are taken: {remedy}.")
                return EXHAUSTED_SECONDS
            own, free = count_of(vpc.metadata.namespace, claims), count_pkeys(ranges, claims).free
            if not may_take(own, free):
                words = (
                    f"Namespace {vpc.metadata.namespace} has {own} P_Keys already, {free} of the NetworkPool are left, "
                )
                remedy = "delete a VPC, or have the administrators add a range to spec.pkeyRanges"
                words = f"{words}and no tenant takes more than are left for all: {remedy}."
                self._say(vpc, None, "False", "PKeyShareExhausted", words)
                return EXHAUSTED_SECONDS
            self._claim(pkey, holder_of(vpc))
        if lacking := sorted(fabric for fabric, vpcs in self._left_out.copy().items() if key in vpcs):
            words = f"Ports are left out of its partition on InfiniBandFabric {', '.join(lacking)}: {LEFT_OUT}."
            remedy = "Have fewer VPCs with partitions, or fewer servers attached to them"
            self._say(vpc, pkey, "False", "PortsLeftOut", f"{words} {remedy}.")
            return None
        self._say(vpc, pkey, "True", "Claimed", f"The claim {pkey_claim(pkey)} is this VPC's.")
        return None

    def _claim(self, pkey: int, holder: ClaimHolder) -> None:
        spec = NetworkClaimSpec(type="PKey", value=f"0x{pkey:04x}", holder=holder)
        body = encode(NetworkClaim(metadata=ObjectMeta(name=pkey_claim(pkey)), spec=spec))
        try:
            made = self._cluster.create(of(NetworkClaim), body, manager=MANAGER)
        except Conflict:
            # Somebody else has it, whom the cache does not show yet.
            there = self._cluster.find(of(NetworkClaim), pkey_claim(pkey))
            if there is not None:
                self._note(pkey_claim(pkey), decode(NetworkClaim, there))
            raise
        self._note(pkey_claim(pkey), decode(NetworkClaim, made))
        log.info("p_key was claimed", pkey=f"0x{pkey:04x}", namespace=holder.namespace, vpc=holder.name)

    def _say(self, vpc: VPC, pkey: int | None, status: ConditionStatus, reason: str, message: str) -> None:
        """The part of the VPC's status that is ours, if it says something new; nothing of a VPC that never asked."""
        settled = condition_of(vpc, ASSIGNED, status, reason, message, self._clock())
        value = f"0x{pkey:04x}" if pkey is not None else None
        if reason == "NotWanted" and vpc.status.pkey is None and settled.type not in _types(vpc):
            return
        if vpc.status.pkey == value and settled in vpc.status.conditions:
            return
        body: dict[str, Any] = {"conditions": [to_json(settled)]} | ({"pkey": value} if value else {})
        try:
            self._cluster.apply_status(VPC, vpc.name, body, manager=MANAGER, namespace=vpc.metadata.namespace)
        except NotFound:
            return

    def release(self, name: str) -> float | None:
        """Take a claim back once its holder is gone and no port has the P_Key. Raises: Retryable, NeedsHuman."""
        if not self.have_synced:
            return UNSYNCED_SECONDS
        claim = look_up(NetworkClaim, self._claims, name)
        if claim is None or pkey_of(claim) is None:
            return None
        holder = claim.spec.holder
        vpc = look_up(VPC, self._vpcs, f"{holder.namespace}/{holder.name}")
        networks = [decode_shared(InfiniBandNetwork, body) for body in self._networks.items()]
        held = held_pkeys(self.claims())
        release = decide_release(claim, vpc, networks, held)
        if release.is_wanted or (claim.status.released_time is None and self._is_held(claim, held)):
            return None
        if not release.is_over or claim.status.released_time is None:
            self._wait(claim, release.waits_for)
            return WAIT_SECONDS
        # What is given to another VPC at once is asked of the API server itself, not of a cache.
        now = self._cluster.find(of(VPC), holder.name, namespace=holder.namespace)
        networks = self._cluster.read_all(InfiniBandNetwork)
        if not decide_release(claim, decode(VPC, now) if now else None, networks, held).is_over:
            return WAIT_SECONDS
        metadata = claim.metadata
        self._cluster.delete(of(NetworkClaim), name, uid=metadata.uid, resource_version=metadata.resource_version)
        self._note(name, None)
        log.info("p_key was released", claim=name)
        return None

    def _is_held(self, claim: NetworkClaim, held: Mapping[ClaimHolder, int]) -> bool:
        """Whether the API server itself has the holder, which a cache may show late: a claim that was let go of once
        counts no more."""
        holder = claim.spec.holder
        now = self._cluster.find(of(VPC), holder.name, namespace=holder.namespace)
        return decide_release(claim, decode(VPC, now) if now else None, (), held).is_wanted

    def _wait(self, claim: NetworkClaim, waits_for: tuple[str, ...]) -> None:
        released = claim.status.released_time or rfc3339(self._clock())
        if (released, waits_for[:MAX_WAITS]) == (claim.status.released_time, claim.status.waits_for):
            return
        status = {"releasedTime": released, "waitsFor": list(waits_for[:MAX_WAITS])}
        try:
            self._cluster.apply_status(NetworkClaim, claim.name, status, manager=MANAGER)
        except NotFound:
            return

    def count(self, name: str) -> float | None:
        """Write the pool's counts if they changed. Raises: Retryable, NeedsHuman."""
        if not self.have_synced:
            return UNSYNCED_SECONDS
        pool = look_up(NetworkPool, self._pools, name)
        if pool is None:
            return None
        counts, status = count_pkeys(pool.spec.pkey_ranges, self.claims()), pool.status
        if (counts.taken, counts.quarantined, counts.free) != (
            status.taken_pkeys,
            status.quarantined_pkeys,
            status.free_pkeys,
        ):
            written = {
                "takenPkeys": counts.taken,
                "quarantinedPkeys": counts.quarantined,
                "freePkeys": counts.free,
            }
            try:
                self._cluster.apply_status(NetworkPool, name, written, manager=MANAGER)
            except NotFound:
                return None
        return None


def _types(vpc: VPC) -> set[str]:
    return {each.type for each in vpc.status.conditions}
