"""A value is free again once its holder is gone and no DPU can have it in its kernel.

The holder is asked for past every cache before it counts as gone; a claim that counts no more is marked first, so that
what is compiled from then on does without it; and it is deleted when all DPUNetworks that held it do not, and their
DPUs have confirmed that. Which ones those are they say themselves (`leaving_of`): a DPU keeps back nothing but what it
was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_network
from typing import Any, Final

import structlog

from provisioner.api import VPC, NetworkClaim, VPCAttachment
from provisioner.api.machinery.codec import decode_shared, to_json
from provisioner.api.machinery.meta import Resource, rfc3339
from provisioner.api.network.network_claim import NetworkClaimStatus
from provisioner.cluster.own_writes import BEHIND_SECONDS
from provisioner.cluster.reconciler import Said
from provisioner.cluster.resources import of
from provisioner.cluster.source import Object, spec_of
from provisioner.network.control.records.informers import is_released, leaving_of, observed_by, vni_in
from provisioner.network.control.records.shared import NetworkParts, NetworkReconciler
from provisioner.network.control.records.writes import MANAGER
from provisioner.rules.ownership import owned_by

log = structlog.get_logger(__name__)

WAITS_SECONDS: Final = 30.0
"""A claim that waits for DPUs is looked at so often, should a change have been missed."""
SETTLE_SECONDS: Final = 2.0
"""Whom a claim waits for is told once it has waited so long: most DPUs confirm before."""
MOST_NAMED: Final = 8

_CONFIRMED_BY_DPUS: Final = ("VNI", "Address", "Port")
_HOLDERS: Final[Mapping[str, type[Resource]]] = {"VPC": VPC, "VPCAttachment": VPCAttachment}


def dpus_with(claim: NetworkClaim, networks: Iterable[Object]) -> Iterator[str]:
    """Names of the DPUs that may have the claim's value in their kernel. `networks`: DPUNetworks that may hold it or
    are lately rid of it: of a port its DPU's, of others those that hold the VNI (`vnis_held`)."""
    value = claim.spec.value
    for network in networks:
        name, spec, leaving = network["metadata"]["name"], spec_of(network), leaving_of(network)
        if claim.spec.type == "VNI":
            yield name
        elif claim.spec.type == "Port":
            function = value.partition("/")[2]
            if function in leaving or any(each["function"] == function for each in spec.get("ports") or ()):
                yield name
        elif not _is_confirmed(network) or _holds(spec, int(vni_in({"metadata": {"name": claim.name}}) or 0), value):
            yield name


def _is_confirmed(network: Object) -> bool:
    return observed_by(network) == int(network["metadata"]["generation"])


def _holds(spec: Mapping[str, Any], vni: int, address: str) -> bool:
    """Whether a port has the address in the VPC with `vni`, or a VPC that takes part in that one reaches it."""
    if any(each["vni"] == vni and address in each["addresses"] for each in spec.get("ports") or ()):
        return True
    prefix = str(ip_network(address))
    domains = spec.get("vpcs") or ()
    near = [each for each in domains if each["vni"] == vni or vni in (each.get("peerVnis") or ())]
    return any(prefix in remote["prefixes"] for each in near for remote in each.get("remotes") or ())


def _is_other(found: Object, uid: str) -> bool:
    """Whether it is not the holder any more. One that is being deleted is not, for that is never taken back: its
    finalizers are its tenant's, who could keep it there for as long as it likes."""
    metadata = found["metadata"]
    return bool(metadata["uid"] != uid or metadata.get("deletionTimestamp"))


class ClaimReleases(NetworkReconciler):
    """Reconciles one NetworkClaim at a time, by name: marks it, and deletes it once nobody has its value."""

    owned = owned_by(MANAGER, NetworkClaim)

    def __init__(self, shared: NetworkParts) -> None:
        super().__init__(shared, shared.facts.caches.claims, settle_seconds=SETTLE_SECONDS)
        self._compilations = shared.compilations
        self._moments: dict[str, int] = {}
        self.controller = shared.controller("network-releases", self.reconcile)

    def leave(self, key: str, body: Object | None) -> float | None:
        if body is not None:  # somebody's finalizer keeps it: it says what it waits for all the same
            return self.advance(key, body) if self.shows_own_writes(key) else BEHIND_SECONDS
        self._moments.pop(key, None)
        self._settling.is_written(key)
        return None

    def decide(self, key: str, body: Object) -> Said | float | None:
        if body["spec"]["type"] not in _CONFIRMED_BY_DPUS:
            return None  # fabrics confirm those: provisioner.network.infiniband
        if is_released(body):
            return self._free(body)
        self._moments.pop(key, None)
        if not self._is_gone(decode_shared(NetworkClaim, body)):
            return None
        return Said(status={"releasedTime": rfc3339(self._now())})

    def is_words(self, body: Object, said: Said) -> bool:
        return is_released(body)

    def _is_gone(self, claim: NetworkClaim) -> bool:
        holder = claim.spec.holder
        sources = {"VPC": self._facts.caches.vpcs, "VPCAttachment": self._facts.caches.attachments}
        cached = sources[holder.kind].get(f"{holder.namespace}/{holder.name}")
        if cached is not None and not _is_other(cached, holder.uid):
            return False
        found = self._cluster.find(of(_HOLDERS[holder.kind]), holder.name, namespace=holder.namespace)
        return found is None or _is_other(found, holder.uid)

    def _free(self, body: Object) -> Said | float | None:
        """Delete it, or say which DPUs it waits for."""
        claim = decode_shared(NetworkClaim, body)
        if claim.name not in self._moments:
            self._facts.claim_changed(body)  # what was kept of before the claim was let go of counts no more
            self._moments[claim.name] = self._compilations.now()
        moment = self._moments[claim.name]
        if not self._compilations.are_over(moment) or not self._compilations.are_seen(self._facts.caches.networks):
            return BEHIND_SECONDS
        waits = sorted(set(dpus_with(claim, self._networks(body, claim))))
        if waits or self._is_needed(claim):
            status = NetworkClaimStatus(released_time=claim.status.released_time, waits_for=tuple(waits[:MOST_NAMED]))
            return Said(status=to_json(status), requeue_after_seconds=WAITS_SECONDS)
        metadata = body["metadata"]
        self._cluster.delete(
            of(NetworkClaim), claim.name, uid=metadata["uid"], resource_version=metadata["resourceVersion"]
        )
        log.info("value was released", claim=claim.name, namespace=claim.spec.holder.namespace)
        return None

    def _networks(self, body: Object, claim: NetworkClaim) -> list[Object]:
        if claim.spec.type == "Port":
            found = self._facts.caches.networks.get(claim.spec.value.partition("/")[0])
            return [found] if found is not None else []
        return self._facts.lookups.networks_by_vni.get(vni_in(body))

    def _is_needed(self, claim: NetworkClaim) -> bool:
        """A VNI is not given anew while addresses are claimed in its name."""
        if claim.spec.type != "VNI":
            return False
        return len(self._facts.lookups.claims_by_vni.get(int(claim.spec.value))) > 1
