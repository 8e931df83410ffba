"""Claims are made and let go of: the effects. Who made a claim and died finds it again by the holder's uid."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from provisioner.api import NetworkClaim
from provisioner.api.machinery.codec import decode, to_json
from provisioner.api.machinery.errors import Conflict, NotFound
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.network.network_claim import ClaimHolder
from provisioner.cluster.client import Cluster
from provisioner.cluster.own_writes import OwnWrites
from provisioner.cluster.resources import of
from provisioner.network.control.claims.wanted import Want
from provisioner.network.control.records.writes import MANAGER

MOST_ATTEMPTS: Final = 16
"""So many values that turn out to be taken are tried, one after the other, before the caches are waited for."""


class Claimer:
    """Writes NetworkClaims, noted in `own` by the key of what decides on them."""

    def __init__(self, cluster: Cluster, own: OwnWrites, clock: Callable[[], datetime]) -> None:
        self._cluster = cluster
        self._own = own
        self._clock = clock

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
