"""One VPCAttachment at a time: claims what it is to have, and says where it stands."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from provisioner.api import VPC, VPCAttachment
from provisioner.api.machinery.codec import decode_shared, to_json
from provisioner.api.machinery.conditions import find_condition
from provisioner.cluster.own_writes import BEHIND_SECONDS
from provisioner.cluster.reconciler import Said, news_of
from provisioner.cluster.source import Object
from provisioner.network.control.claims.claimer import Claimer
from provisioner.network.control.claims.wanted import FindClaim, WantedClaims, vpc_trouble, want_for_attachment
from provisioner.network.control.compile.peers import key_of
from provisioner.network.control.compile.place import FunctionPlace
from provisioner.network.control.compile.room import has_room, room_for
from provisioner.network.control.compile.security import group_trouble, groups_of
from provisioner.network.control.compile.trouble import Trouble
from provisioner.network.control.compile.view import port_of
from provisioner.network.control.records.facts import addresses_of
from provisioner.network.control.records.informers import function_in
from provisioner.network.control.records.shared import NetworkParts, NetworkReconciler
from provisioner.network.control.records.writes import MANAGER
from provisioner.network.control.report.attachment import AttachmentState, attachment_status
from provisioner.network.control.vpcs import RETRY_SECONDS, is_waiting
from provisioner.rules.ownership import owned_by

WORKERS: Final = 4
SETTLE_SECONDS: Final = 1.0
"""What is most often over within so long is not told: that a DPU has not confirmed yet."""


class Attachments(NetworkReconciler):
    """Reconciles VPCAttachments, by namespace/name: claims what each needs, and says where it stands.

    refused: DPUs whose DPUNetwork the API server did not take.
    """

    owned = owned_by(MANAGER, VPCAttachment)

    def __init__(self, shared: NetworkParts, refused: Container[str]) -> None:
        super().__init__(shared, shared.facts.caches.attachments, settle_seconds=SETTLE_SECONDS)
        self._generations = shared.generations
        self._refused = refused
        self._claimer = Claimer(shared.cluster, shared.facts.caches.claims, self.own, shared.clock)
        self.controller = shared.controller("network-attachments", self.reconcile, workers=WORKERS)

    def decide(self, key: str, body: Object) -> Said | float:
        attachment = decode_shared(VPCAttachment, body)
        vpc = self._facts.vpc(f"{attachment.metadata.namespace}/{attachment.spec.vpc_ref}")
        vni = self._facts.vni_of(vpc) if vpc is not None else None
        at = self._facts.place_of(attachment)
        wanted, has_acted = self._claim(key, attachment, vpc, vni, at)
        if has_acted:
            return BEHIND_SECONDS
        status = attachment_status(attachment, self._stand(attachment, vpc, vni, at, wanted.trouble), self._now())
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
        """As `Claimer.bring`; a VPC that has no VNI yet changes nothing."""
        trouble = vpc_trouble(attachment, vpc, vni)
        if vpc is not None and vni is None:
            return WantedClaims(trouble=trouble), False

        def want(find: FindClaim) -> WantedClaims:
            held = self._facts.held_by(attachment).claims
            if vpc is None or vni is None:
                return WantedClaims(surplus=tuple(each.name for each in held), trouble=trouble)
            is_full = isinstance(at, FunctionPlace) and self._is_full(at)
            return want_for_attachment(attachment, vpc, vni, at, held, find, is_full=is_full)

        return self._claimer.bring(key, attachment, want)

    def _is_full(self, at: FunctionPlace) -> bool:
        """Whether the DPU is told of as many functions as it can be, and not of this one."""
        claimed = [function_in(each) for each in self._facts.lookups.claims_by_dpu.get(at.dpu)]
        return not has_room(at.function, self._facts.functions_assigned(at.dpu), claimed)

    def _stand(
        self,
        attachment: VPCAttachment,
        vpc: VPC | None,
        vni: int | None,
        at: FunctionPlace | Trouble,
        trouble: Trouble | None,
    ) -> AttachmentState:
        endpoint = None
        addresses: tuple[str, ...] = ()
        if vpc is not None and vni is not None:
            namespace = attachment.metadata.namespace
            addresses = addresses_of(vpc, attachment, self._facts.held_by(attachment).addresses(vni))
            view = self._facts.view(key_of(vpc))
            endpoint = view.by_attachment.get(f"{namespace}/{attachment.name}") if view is not None else None
            groups = self._facts.groups_in(namespace, groups_of(vpc, attachment))
            trouble = trouble or group_trouble(vpc, attachment, groups)
        place = at if isinstance(at, FunctionPlace) else None
        has_nothing = trouble is None and endpoint is None
        if has_nothing and place is not None and self._facts.rival_of(place.dpu, place.vtep) is not None:
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
