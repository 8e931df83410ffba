"""Claims are made and let go of: the effects. Who made a claim and died finds it again by the holder's uid."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from provisioner.api import VPC, NetworkClaim, VPCAttachment
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.machinery.errors import Conflict, NotFound, Retryable
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.network.network_claim import ClaimHolder
from provisioner.cluster.client import Cluster
from provisioner.cluster.own_writes import OwnWrites
from provisioner.cluster.resources import of
from provisioner.cluster.source import Source, look_up
from provisioner.network.control.claims.wanted import FindClaim, Want, WantedClaims
from provisioner.network.control.records.writes import MANAGER

MOST_ATTEMPTS: Final = 16
"""So many values that turn out to be taken are tried, one after the other, before the caches are waited for."""


class Claimer:
    """Writes NetworkClaims, noted in `own` by the key of what decides on them. `claims`: as they are in the cache."""

    def __init__(self, cluster: Cluster, claims: Source, own: OwnWrites, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._claims = claims
        self._own = own
        self._clock = clock

    def bring(
        self, key: str, subject: VPC | VPCAttachment, want: Callable[[FindClaim], WantedClaims]
    ) -> tuple[WantedClaims, bool]:
        """Make the claims that `subject` lacks of what is wanted, or else let go of those that it has too many.

        Returns: what is wanted, and whether something was written that the caches are to show first. Raises: Retryable.
        """
        refused: dict[str, NetworkClaim] = {}

        def find(name: str) -> NetworkClaim | None:
            return refused.get(name) or look_up(NetworkClaim, self._claims, name)

        metadata = subject.metadata
        holder = ClaimHolder(
            kind="VPC" if isinstance(subject, VPC) else "VPCAttachment",
            namespace=str(metadata.namespace),
            name=subject.name,
            uid=str(metadata.uid),
        )
        wanted = want(find)
        while (other := self._first_refused(key, wanted, holder)) is not None:
            refused[other.name] = other
            if len(refused) > MOST_ATTEMPTS:
                raise Retryable(f"{holder.kind} {key}: the last {MOST_ATTEMPTS} values were taken meanwhile")
            wanted = want(find)
        if wanted.claims:
            return wanted, True
        for name in wanted.surplus:
            found = self._claims.get(name)
            if found is not None:
                self.release(key, found)
        return wanted, bool(wanted.surplus)

    def _first_refused(self, key: str, wanted: WantedClaims, holder: ClaimHolder) -> NetworkClaim | None:
        """The claim of another one that is in the way; None if all could be made."""
        made = (self.claim(key, each, holder) for each in wanted.claims)
        return next((other for other in made if other is not None), None)

    def claim(self, group: str, want: Want, holder: ClaimHolder) -> NetworkClaim | None:
        """Make a claim for `holder`. Returns: None if it has it, by this or by a write before; else the claim of
        another one, or one that was let go of. Raises: Retryable."""
        type_ = of(NetworkClaim)
        spec = {"type": want.type, "value": want.value, "holder": to_json(holder)}
        body = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": {"name": want.name}, "spec": spec}
        try:
            written = self._cluster.create(type_, body, manager=MANAGER)
        except Conflict:
            found = self._cluster.find(type_, want.name)
            if found is None:
                raise
            claim = decode(NetworkClaim, found)
            if claim.spec.holder.uid != holder.uid or claim.status.released_time is not None:
                return claim
            written = found
        self._own.note(group, type_, written)
        return None

    def release(self, group: str, claim: dict[str, Any]) -> None:
        """Say that nobody has the value any more. `claim`: as it was read. Raises: Conflict, Retryable."""
        metadata, released = claim["metadata"], {"releasedTime": rfc3339(self._clock())}
        try:
            written = self._cluster.apply_status(
                NetworkClaim,
                metadata["name"],
                released,
                manager=MANAGER,
                resource_version=metadata["resourceVersion"],
            )
        except NotFound:
            return
        self._own.note(group, of(NetworkClaim), written)
