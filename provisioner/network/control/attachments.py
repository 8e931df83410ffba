"""One VPCAttachment at a time: claims what it is to have, and says where it stands."""

from __future__ import annotations

from collections.abc import Callable, Container
from datetime import datetime
from typing import Final

import structlog

from provisioner.api import VPC, NetworkClaim, VPCAttachment
from provisioner.api.machinery.codec import decode_shared, to_json
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import Retryable
from provisioner.api.network.network_claim import ClaimHolder
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.own_writes import BEHIND_SECONDS
from provisioner.cluster.reconciler import Said, StatusReconciler, news_of
from provisioner.cluster.resources import ResourceType, of
from provisioner.cluster.source import Object, look_up
from provisioner.network.control.claims.claimer import MOST_ATTEMPTS, Claimer
from provisioner.network.control.claims.wanted import WantedClaims, vpc_trouble, want_for_attachment
from provisioner.network.control.compile.peers import key_of
from provisioner.network.control.compile.place import FunctionPlace
from provisioner.network.control.compile.room import has_room, room_for
from provisioner.network.control.compile.security import group_trouble, groups_of
from provisioner.network.control.compile.trouble import Trouble
from provisioner.network.control.compile.view import Endpoint, port_of
from provisioner.network.control.records.facts import Facts, addresses_of
from provisioner.network.control.records.informers import function_in
from provisioner.network.control.records.writes import MANAGER, Generations
from provisioner.network.control.report.attachment import AttachmentState, attachment_status
from provisioner.network.control.vpcs import RETRY_SECONDS, is_waiting
from provisioner.rules.ownership import owned_by

log = structlog.get_logger(__name__)

WORKERS: Final = 4
SETTLE_SECONDS: Final = 1.0
"""What is most often over within so long is not told: that a DPU has not confirmed yet."""


class Attachments(StatusReconciler[Said]):
    """Reconciles VPCAttachments, by namespace/name: claims what each needs, and says where it stands.

    refused: DPUs whose DPUNetwork the API server did not take.
    """

    owned = owned_by(MANAGER, VPCAttachment)

    def __init__(
        self,
        cluster: Cluster,
        facts: Facts,
        events: Events,
        generations: Generations,
        refused: Container[str],
        controller: Callable[..., Controller],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        caches = facts.caches
        super().__init__(
            cluster, caches.attachments, events, caches=caches.all, now=clock,
            settle_seconds=SETTLE_SECONDS, monotonic=monotonic,
        )  # fmt: skip
        self._facts = facts
        self._generations = generations
        self._refused = refused
        self._claimer = Claimer(cluster, self.own, clock)
        self.controller = controller("network-attachments", self.reconcile, workers=WORKERS)

    def decide(self, key: str, body: Object) -> Said | float:
        attachment = decode_shared(VPCAttachment, body)
        vpc = self._facts.vpc(f"{attachment.metadata.namespace}/{attachment.spec.vpc_ref}")
        vni = self._facts.vni_of(vpc) if vpc is not None else None
        at = self._facts.place_of(attachment)
        wanted, acted = self._claim(key, attachment, vpc, vni, at)
        if acted:
            return BEHIND_SECONDS
        status = attachment_status(attachment, self._stand(attachment, vpc, vni, at, wanted), self._now())
        before, ready = find_condition(attachment.status.conditions, "Ready"), status.conditions[0]
        return Said(
            status=to_json(status),
            events=news_of(before, ready, is_calm=lambda reason: is_waiting(reason) or reason == "Quarantined"),
            requeue_after_seconds=RETRY_SECONDS if ready.status != "True" else None,
        )

    def is_words(self, body: Object, said: Said) -> bool:
        return is_waiting((said.status or {})["conditions"][0]["reason"])

    def _claim(
        self, key: str, attachment: VPCAttachment, vpc: VPC | None, vni: int | None, at: FunctionPlace | Trouble
    ) -> tuple[WantedClaims, bool]:
        """Make the claims that are missing, or else let go of one too many. Returns: what is wanted, and whether
        something was written that the caches are to show first."""
        if vpc is not None and vni is None:
            return WantedClaims(trouble=vpc_trouble(attachment, vpc, vni)), False
        refused: dict[str, NetworkClaim] = {}
        wanted = self._want(attachment, vpc, vni, at, refused)
        while (other := self._make(key, attachment, wanted)) is not None:
            refused[other.name] = other
            if len(refused) > MOST_ATTEMPTS:
                raise Retryable(f"VPCAttachment {key}: the last {MOST_ATTEMPTS} values were taken meanwhile")
            wanted = self._want(attachment, vpc, vni, at, refused)
        if wanted.claims:
            return wanted, True
        for name in wanted.surplus:
            found = self._facts.caches.claims.get(name)
            if found is not None:
                self._claimer.release(key, found)
        return wanted, bool(wanted.surplus)

    def _want(
        self,
        attachment: VPCAttachment,
        vpc: VPC | None,
        vni: int | None,
        at: FunctionPlace | Trouble,
        refused: dict[str, NetworkClaim],
    ) -> WantedClaims:
        held = self._facts.held_by(attachment).claims
        if vpc is None or vni is None:
            return WantedClaims(
                surplus=tuple(each.name for each in held),
                trouble=vpc_trouble(attachment, vpc, vni),
            )

        def find(name: str) -> NetworkClaim | None:
            return refused.get(name) or look_up(NetworkClaim, self._facts.caches.claims, name)

        is_full = isinstance(at, FunctionPlace) and self._is_full(at)
        return want_for_attachment(attachment, vpc, vni, at, held, find, is_full=is_full)

    def _is_full(self, at: FunctionPlace) -> bool:
        """Whether the DPU is told of as many functions as it can be, and not of this one."""
        claimed = [function_in(each) for each in self._facts.lookups.claims_by_dpu.get(at.dpu)]
        return not has_room(at.function, self._facts.functions_assigned(at.dpu), claimed)

    def _make(self, key: str, attachment: VPCAttachment, wanted: WantedClaims) -> NetworkClaim | None:
        """Returns: the claim of another one that is in the way; None if all could be made."""
        metadata = attachment.metadata
        holder = ClaimHolder(
            kind="VPCAttachment",
            namespace=str(metadata.namespace),
            name=attachment.name,
            uid=str(metadata.uid),
        )
        for want in wanted.claims:
            other = self._claimer.claim(key, want, holder)
            if other is not None:
                return other
        return None

    def _stand(
        self,
        attachment: VPCAttachment,
        vpc: VPC | None,
        vni: int | None,
        at: FunctionPlace | Trouble,
        wanted: WantedClaims,
    ) -> AttachmentState:
        trouble, endpoint = wanted.trouble, None
        addresses: tuple[str, ...] = ()
        if vpc is not None and vni is not None:
            addresses = addresses_of(vpc, attachment, self._facts.held_by(attachment).addresses(vni))
            endpoint = self._endpoint(attachment, f"{attachment.metadata.namespace}/{vpc.name}")
            trouble = trouble or self._group_trouble(attachment, vpc)
        place = at if isinstance(at, FunctionPlace) else None
        if (
            trouble is None
            and endpoint is None
            and place is not None
            and (self._facts.rival_of(place.dpu, place.vtep) is not None)
        ):
            trouble = Trouble(
                reason="DuplicateVTEPAddress",
                message=f"DPU '{place.dpu}' has the same address on the underlay as another DPU, so that neither is "
                "told of new attachments: have the administrators give it one of its own (spec.dpu.vtepAddress)",
            )
        dpu = place.dpu if place is not None else attachment.status.dpu_ref
        return AttachmentState(
            place=place,
            addresses=addresses,
            port=port_of(endpoint, vni) if endpoint is not None and vni is not None else None,
            trouble=trouble,
            network=self._facts.network(dpu) if dpu is not None else None,
            since=self._generations.of(dpu, attachment.spec.function) if dpu and endpoint else None,
            is_refused=dpu in self._refused,
            left_out=self._left_out(place.dpu, vpc) if place is not None and vpc is not None and endpoint else (),
        )

    def _left_out(self, dpu: str, vpc: VPC) -> tuple[str, ...]:
        """The peers of the VPC for which its DPU has no room."""
        view = self._facts.view(key_of(vpc))
        if view is None or not view.peers:
            return ()
        room = room_for(dpu, self._facts.views_on(dpu), with_remotes=self._facts.evpn() is None)
        return tuple(sorted(peer for one, peer in room.left_out if one == view.key))

    def _endpoint(self, attachment: VPCAttachment, vpc: str) -> Endpoint | None:
        view = self._facts.view(vpc)
        key = f"{attachment.metadata.namespace}/{attachment.name}"
        return view.by_attachment.get(key) if view is not None else None

    def _group_trouble(self, attachment: VPCAttachment, vpc: VPC) -> Trouble | None:
        groups = self._facts.groups_in(attachment.metadata.namespace, groups_of(vpc, attachment))
        return group_trouble(vpc, attachment, groups)

    def look(self, key: str, type_: ResourceType, name: str) -> Object | None:
        return self._source.get(key) if type_ == of(VPCAttachment) else self._facts.caches.claims.get(name)
