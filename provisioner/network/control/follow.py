"""What a change concerns: one of an attachment the DPUs of its VPC and of that one's peers, and no others."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api.network.network_pool import THE_POOL
from provisioner.cluster.source import Object, conditions_of, spec_of
from provisioner.cluster.work_queue import WorkQueue
from provisioner.network.control.grants import DPU_LABEL
from provisioner.network.control.records.facts import Facts
from provisioner.network.control.records.informers import (
    card_of,
    dpu_in,
    holder_of,
    is_released,
    key_of,
    peers_named,
    vni_in,
    vnis_held,
    vpc_of,
)
from provisioner.network.control.turns import TenantTurns

SETTLE_SECONDS: Final = 0.1
"""What changes in quick succession is compiled once."""
TELL_SECONDS: Final = 1.0
"""Counts are written no more often."""

Maybe = Object | None


@dataclass(frozen=True, kw_only=True)
class NetworkQueues:
    """By what each is keyed: VPCs, attachments and groups by namespace/name, the others by name. spread: VPCs whose
    DPUs are to be compiled, each with the tenant that has changed something: `blue:blue/main`, `:blue/main`."""

    vpcs: WorkQueue
    attachments: WorkQueue
    groups: WorkQueue
    pools: WorkQueue
    claims: WorkQueue
    dpus: WorkQueue
    spread: WorkQueue


class FollowNetworks:
    """Puts into the queues what changes concern."""

    def __init__(self, facts: Facts, queues: NetworkQueues, turns: TenantTurns) -> None:
        self._facts = facts
        self._turns = turns
        self._lookups = facts.lookups
        self._queues = queues

    def subscribe(self) -> None:
        caches = self._facts.caches
        caches.servers.subscribe(self.server_changed)
        caches.pools.subscribe(self.pool_changed)
        caches.claims.subscribe(self.claim_changed)
        caches.groups.subscribe(self.group_changed)
        caches.vpcs.subscribe(self.vpc_changed)
        caches.attachments.subscribe(self.attachment_changed)
        caches.networks.subscribe(self.network_changed)
        for each in (caches.roles, caches.bindings):
            each.subscribe(self.grant_changed)

    def spread(self, key: str) -> float | None:
        """Have the DPUs compiled that take part in a VPC, or are to, once it is the turn of who has changed it."""
        cause, _, vpc = key.partition(":")
        if (rest := self._turns.wait(cause)) > 0:
            return rest
        dpus = self._dpus_of(vpc)
        self._turns.take(cause, len(dpus))
        for dpu in dpus:
            self._queues.dpus.add(dpu)
        return None

    def _dpus_of(self, vpc: str) -> set[str]:
        found = self._dpus_with_ports(vpc)
        for claim in self._lookups.claims_by_holder.get(("VPC", vpc)):
            for network in self._lookups.networks_by_vni.get(vni_in(claim)):
                found.add(network["metadata"]["name"])
        for peer in self._peers(vpc, self._facts.caches.vpcs.get(vpc)):
            found |= self._dpus_with_ports(peer)
        return found

    def _peers(self, vpc: str, *bodies: Maybe) -> set[str]:
        """The VPCs that one, as it is and as it was, names, and that name it: nobody else's are looked at for it."""
        named = {peer for body in bodies for peer in peers_named(body)}
        return {peer for peer in named if vpc in peers_named(self._facts.caches.vpcs.get(peer))}

    def _dpus_with_ports(self, vpc: str) -> set[str]:
        return {dpu for attachment in self._lookups.attachments_by_vpc.get(vpc) for dpu in self._dpus_under(attachment)}

    def _dpus_under(self, attachment: Maybe) -> set[str]:
        """Those of which it has claimed a function."""
        uid = (attachment or {}).get("metadata", {}).get("uid")
        return {dpu for claim in self._lookups.claims_by_holder.get(("uid", uid)) if (dpu := dpu_in(claim)) is not None}

    def attachment_changed(self, key: str, old: Maybe, new: Maybe) -> None:
        vpcs = {vpc_of(each) for each in (old, new) if each is not None}
        if _essence(old) != _essence(new):
            self._facts.changed(vpcs)
            self._queues.attachments.add(key)
            self._spread(vpcs, key.partition("/")[0])
            for dpu in self._dpus_under(new if new is not None else old):
                self._queues.dpus.add_first_after(dpu, SETTLE_SECONDS)
            self._left(old, new)
        elif _ready(old) == _ready(new):
            return
        for vpc in vpcs:
            self._queues.vpcs.add_after(vpc, TELL_SECONDS)
            self._tell_groups(self._facts.caches.vpcs.get(vpc))
        for body in (old, new):
            self._tell_groups(body)

    def vpc_changed(self, key: str, old: Maybe, new: Maybe) -> None:
        peers = self._peers(key, old, new)
        if _essence(old) == _essence(new):
            for peer in _peers_that_hold_else(old, new):
                self._facts.changed({key, *peers})
                self._queues.vpcs.add_after(peer, TELL_SECONDS)
                self._spread({key}, peer.partition("/")[0])
            return
        theirs = {each for peer in peers for each in self._peers(peer, self._facts.caches.vpcs.get(peer))} - {key}
        self._facts.changed({key, *peers, *theirs})
        named = {*peers_named(old), *peers_named(new), *(key_of(each) for each in self._lookups.vpcs_by_peer.get(key))}
        for vpc in {key, *named}:
            self._queues.vpcs.add(vpc)
        for vpc in theirs - named:  # which may be peers no more, or again
            self._queues.vpcs.add_after(vpc, TELL_SECONDS)
        self._spread({key, *peers}, key.partition("/")[0])
        self._queue_attachments(self._lookups.attachments_by_vpc.get(key))
        self._left(old, new)
        for body in (old, new):
            self._tell_groups(body)

    def claim_changed(self, key: str, old: Maybe, new: Maybe) -> None:
        body = new if new is not None else old
        if body is None:
            return
        if old is not None and new is not None and is_released(old) == is_released(new):
            self._queues.claims.add(key)
            return
        self._facts.claim_changed(body)
        self._queues.claims.add(key)
        kind, holder = holder_of(body)
        if kind == "VPC":
            self._queues.vpcs.add(holder)
            self._queue_attachments(self._lookups.attachments_by_vpc.get(holder))
            self._queues.pools.add_after(THE_POOL, TELL_SECONDS)
            self._spread({holder}, holder.partition("/")[0])
            return
        self._queues.attachments.add(holder)
        attachment = self._facts.caches.attachments.get(holder)
        if attachment is not None:
            self._spread({vpc_of(attachment)}, holder.partition("/")[0])
        if (dpu := dpu_in(body)) is not None:
            self._queues.dpus.add_first_after(dpu, SETTLE_SECONDS)
            if new is None:
                self._queue_attachments_on(dpu)
        if new is None:
            self._queue_claims(self._lookups.released_by_vni.get(vni_in(body)))

    def server_changed(self, key: str, old: Maybe, new: Maybe) -> None:
        if _boot_part(old) != _boot_part(new):
            for each in self._lookups.dpus_by_host.get(key):
                self._queues.dpus.add(each["metadata"]["name"])
        if _server_part(old) == _server_part(new):
            return
        self._queue_changed(self._lookups.attachments_by_server.get(key))
        if not card_of(old) and not card_of(new):
            return
        self._queues.dpus.add(key)
        for body in (old, new):
            card = card_of(body)
            self._queue_changed(self._lookups.attachments_by_server.get(card.get("hostRef")))
            for rival in self._lookups.dpus_by_vtep.get(card.get("vtepAddress")) if card.get("vtepAddress") else ():
                self._queues.dpus.add(rival["metadata"]["name"])
                self._queue_changed(self._lookups.attachments_by_server.get(card_of(rival).get("hostRef")))

    def group_changed(self, key: str, old: Maybe, new: Maybe) -> None:
        self._queues.groups.add_after(key, SETTLE_SECONDS)
        if _essence(old) == _essence(new):
            return
        tenant = key.partition("/")[0]
        self._queue_changed(self._lookups.attachments_by_group.get(key), tenant)
        for vpc in self._lookups.vpcs_by_group.get(key):
            self._queues.vpcs.add(key_of(vpc))
            self._queue_changed(self._lookups.attachments_by_vpc.get(key_of(vpc)), tenant)

    def pool_changed(self, key: str, old: Maybe, new: Maybe) -> None:
        if _essence(old) == _essence(new):
            return
        self._queues.pools.add(key)
        if spec_of(old).get("routeDistribution") != spec_of(new).get("routeDistribution"):
            for network in self._facts.caches.networks.items():
                self._queues.dpus.add(network["metadata"]["name"])
        for vpc in self._facts.caches.vpcs.items():
            if (vpc.get("status") or {}).get("vni") is None:
                self._queues.vpcs.add(key_of(vpc))

    def network_changed(self, key: str, old: Maybe, new: Maybe) -> None:
        """What a DPU has confirmed, or what it is told."""
        if new is None or (old is not None and old["spec"] != new["spec"]):
            self._queues.dpus.add(key)
        for claim in self._lookups.claims_by_dpu.get(key):
            if is_released(claim):
                self._queues.claims.add(claim["metadata"]["name"])
            else:
                self._queues.attachments.add(holder_of(claim)[1])
        vnis = {vni for body in (old, new) if body is not None for vni in vnis_held(body)}
        for vni in vnis:
            self._queue_claims(self._lookups.released_by_vni.get(vni))

    def grant_changed(self, key: str, old: Maybe, new: Maybe) -> None:
        labels = ((new or old or {}).get("metadata") or {}).get("labels") or {}
        if DPU_LABEL in labels:
            self._queues.dpus.add(labels[DPU_LABEL])

    def _left(self, old: Maybe, new: Maybe) -> None:
        """The claims of a holder that is gone, or going."""
        if old is None or (new is not None and _identity(new) == _identity(old)):
            return
        for claim in self._lookups.claims_by_holder.get(("uid", old["metadata"]["uid"])):
            self._queues.claims.add(claim["metadata"]["name"])

    def _spread(self, vpcs: Iterable[str], cause: str) -> None:
        """cause: the tenant that has changed something; "": the administrators."""
        for vpc in vpcs:
            self._queues.spread.add_after(f"{cause}:{vpc}", SETTLE_SECONDS)

    def _queue_changed(self, attachments: list[Object], cause: str = "") -> None:
        """Those of which something else is compiled, and the DPUs of their VPCs."""
        self._facts.changed({vpc_of(body) for body in attachments})
        self._queue_attachments(attachments)
        self._spread({vpc_of(body) for body in attachments}, cause)

    def _queue_attachments(self, bodies: Iterable[Object]) -> None:
        for body in bodies:
            self._queues.attachments.add(key_of(body))

    def _queue_attachments_on(self, dpu: str) -> None:
        host = card_of(self._facts.caches.servers.get(dpu)).get("hostRef")
        self._queue_attachments(self._lookups.attachments_by_server.get(host))

    def _queue_claims(self, claims: Iterable[Object]) -> None:
        for claim in claims:
            self._queues.claims.add(claim["metadata"]["name"])

    def _tell_groups(self, body: Maybe) -> None:
        for name in spec_of(body).get("securityGroupRefs") or ():
            namespace = body["metadata"]["namespace"] if body is not None else ""
            self._queues.groups.add_after(f"{namespace}/{name}", TELL_SECONDS)


def _essence(body: Maybe) -> Any:
    """What others go by: all but the status."""
    if body is None:
        return None
    return *_identity(body), body["spec"]


def _peers_that_hold_else(old: Maybe, new: Maybe) -> set[str]:
    """Keys of the peers of which the status of a VPC says something else: it is for their tenants' changes."""
    before, after = (
        {f"{each['namespace']}/{each['name']}": each["prefixes"] for each in peers}
        for peers in (((body or {}).get("status") or {}).get("peers") or () for body in (old, new))
    )
    return {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _identity(body: Object) -> tuple[str, bool]:
    metadata = body["metadata"]
    return metadata["uid"], bool(metadata.get("deletionTimestamp"))


def _ready(attachment: Maybe) -> Any:
    status = (attachment or {}).get("status") or {}
    return status.get("forwardingState"), [(c["type"], c["status"]) for c in conditions_of(attachment)]


def _server_part(body: Maybe) -> Any:
    spec = spec_of(body)
    if body is None:
        return None
    fields = ("tenant", "bootMACAddress", "networkQuarantined", "acceptance", "dpu")
    return body["metadata"]["uid"], *(spec.get(each) for each in fields)


def _boot_part(body: Maybe) -> Any:
    """What a DPU is told of the host that boots through it."""
    spec = spec_of(body)
    return spec.get("acceptance"), spec.get("bootMACAddress"), ((body or {}).get("status") or {}).get("address")
