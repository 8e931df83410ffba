"""One VPCAttachment at a time: claims what it is to have, and says where it stands."""

from __future__ import annotations

from collections.abc import Callable, Container
from datetime import datetime
from typing import Final

import structlog

from provisioner.api import VPC, NetworkClaim, VPCAttachment
from provisioner.api.codec import decode_shared, to_json
from provisioner.api.conditions import find_condition
from provisioner.api.errors import NotFound, Retryable
from provisioner.api.network_claim import ClaimHolder
from provisioner.api.vpc_attachment import VPCAttachmentStatus
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import RESYNC_SECONDS, Controller, Settling
from provisioner.cluster.events import Events
from provisioner.cluster.own_writes import BEHIND_SECONDS, OwnWrites
from provisioner.cluster.resources import ResourceType, of
from provisioner.cluster.source import Object, look_up
from provisioner.network.control.claims.claimer import MOST_ATTEMPTS, Claimer
from provisioner.network.control.claims.wanted import Wanted, vpc_trouble, want_for_attachment
from provisioner.network.control.compile.peers import key_of
from provisioner.network.control.compile.place import Place
from provisioner.network.control.compile.room import has_room, room_for
from provisioner.network.control.compile.security import group_trouble, groups_of
from provisioner.network.control.compile.view import Endpoint, port_of
from provisioner.network.control.facts import Facts, addresses_of
from provisioner.network.control.informers import function_in
from provisioner.network.control.report.attachment import Standing, attachment_status
from provisioner.network.control.trouble import Trouble
from provisioner.network.control.writes import MANAGER, Generations

log = structlog.get_logger(__name__)

WORKERS: Final = 4
SETTLE_SECONDS: Final = 1.0
"""What is most often over within so long is not told: that a DPU has not confirmed yet."""
RETRY_SECONDS: Final = 15.0
"""What waits for something of others is looked at so often, whatever the caches tell."""


class Attachments:
    """Reconciles VPCAttachments, by namespace/name. refused: DPUs whose DPUNetwork the API server did not take."""

    def __init__(
        self,
        cluster: Cluster,
        facts: Facts,
        own: OwnWrites,
        events: Events,
        generations: Generations,
        refused: Container[str],
        controller: Callable[..., Controller],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._facts = facts
        self._own = own
        self._events = events
        self._generations = generations
        self._refused = refused
        self._clock = clock
        self._claimer = Claimer(cluster, own, clock)
        self._settling = Settling(SETTLE_SECONDS, monotonic)
        self.controller = controller("network-attachments", self.reconcile, workers=WORKERS)

    def reconcile(self, key: str) -> float | None:
        """Bring the attachment on. Raises: Retryable, NeedsHuman."""
        if not self._facts.caches.have_synced:
            return BEHIND_SECONDS
        body = self._facts.caches.attachments.get(key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None
        if not self._own.are_seen(key, lambda type_, name: self._look(key, type_, name)):
            return BEHIND_SECONDS
        attachment = decode_shared(VPCAttachment, body)
        vpc = self._facts.vpc(f"{attachment.metadata.namespace}/{attachment.spec.vpc_ref}")
        vni = self._facts.vni_of(vpc) if vpc is not None else None
        at = self._facts.place_of(attachment)
        wanted, acted = self._claim(key, attachment, vpc, vni, at)
        if acted:
            return BEHIND_SECONDS
        standing = self._stand(attachment, vpc, vni, at, wanted)
        status = attachment_status(attachment, standing, self._clock())
        if to_json(status) == to_json(attachment.status):
            self._settling.is_written(key)
        elif status.conditions[0].reason.startswith("WaitsFor") and (rest := self._settling.rest(key)) > 0:
            return rest
        else:
            self._settling.is_written(key)
            self._write(key, body, attachment, status)
        return RETRY_SECONDS if status.conditions[0].status != "True" else RESYNC_SECONDS

    def _claim(
        self, key: str, attachment: VPCAttachment, vpc: VPC | None, vni: int | None, at: Place | Trouble
    ) -> tuple[Wanted, bool]:
        """Make the claims that are missing, or else let go of one too many. Returns: what is wanted, and whether
        something was written that the caches are to show first."""
        if vpc is not None and vni is None:
            return Wanted(trouble=vpc_trouble(attachment, vpc, vni)), False
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
        at: Place | Trouble,
        refused: dict[str, NetworkClaim],
    ) -> Wanted:
        held = self._facts.held_by(attachment).claims
        if vpc is None or vni is None:
            return Wanted(
                surplus=tuple(each.name for each in held),
                trouble=vpc_trouble(attachment, vpc, vni),
            )

        def find(name: str) -> NetworkClaim | None:
            return refused.get(name) or look_up(NetworkClaim, self._facts.caches.claims, name)

        is_full = isinstance(at, Place) and self._is_full(at)
        return want_for_attachment(attachment, vpc, vni, at, held, find, is_full=is_full)

    def _is_full(self, at: Place) -> bool:
        """Whether the DPU is told of as many functions as it can be, and not of this one."""
        claimed = [function_in(each) for each in self._facts.lookups.claims_by_dpu.get(at.dpu)]
        return not has_room(at.function, self._facts.functions_assigned(at.dpu), claimed)

    def _make(self, key: str, attachment: VPCAttachment, wanted: Wanted) -> NetworkClaim | None:
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
        self, attachment: VPCAttachment, vpc: VPC | None, vni: int | None, at: Place | Trouble, wanted: Wanted
    ) -> Standing:
        trouble, endpoint = wanted.trouble, None
        addresses: tuple[str, ...] = ()
        if vpc is not None and vni is not None:
            addresses = addresses_of(vpc, attachment, self._facts.held_by(attachment).addresses(vni))
            endpoint = self._endpoint(attachment, f"{attachment.metadata.namespace}/{vpc.name}")
            trouble = trouble or self._group_trouble(attachment, vpc)
        place = at if isinstance(at, Place) else None
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
        return Standing(
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

    def _write(self, key: str, body: Object, attachment: VPCAttachment, status: VPCAttachmentStatus) -> None:
        metadata = attachment.metadata
        group_type = of(VPCAttachment)
        with self._own.written_on(key, group_type, body):
            try:
                written = self._cluster.apply_status(
                    VPCAttachment,
                    attachment.name,
                    to_json(status),
                    manager=MANAGER,
                    resource_version=metadata.resource_version,
                    namespace=metadata.namespace,
                )
            except NotFound:
                return
        self._own.note(key, group_type, written)
        before, after = find_condition(attachment.status.conditions, "Ready"), status.conditions[0]
        if before is None or (before.status, before.reason) != (after.status, after.reason):
            waits = after.reason.startswith("WaitsFor") or after.reason == "Quarantined"
            type_ = "Normal" if after.status == "True" or waits else "Warning"
            self._events.record(body, type_, after.reason, after.message)  # type: ignore[arg-type]

    def _look(self, key: str, type_: ResourceType, name: str) -> Object | None:
        caches = self._facts.caches
        if type_ == of(VPCAttachment):
            return caches.attachments.get(key)
        return caches.claims.get(name)
