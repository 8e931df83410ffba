"""Which VPC has which P_Key: by the claim that is named after it. Pure.

A value is chosen here and had by who creates its claim; a VPC's status only repeats it. It is released when every
fabric has been read back since, and no port has it any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from provisioner.api import VPC, InfiniBandNetwork, NetworkClaim
from provisioner.api.machinery.meta import parse_time, read_time
from provisioner.api.network.infiniband_rules import FIRST_PKEY, LAST_PKEY
from provisioner.api.network.network_claim import ClaimHolder, pkey_claim
from provisioner.api.network.network_pool import PKeyRange

MAX_WAITS: int = 8
"""Fabrics that a claim names as those that it waits for."""


@dataclass(frozen=True, kw_only=True)
class PKeyCounts:
    """P_Keys of the ranges. Free are those that the next VPCs can have."""

    taken: int
    quarantined: int
    free: int


@dataclass(frozen=True, kw_only=True)
class Release:
    """What becomes of a claim: kept while its holder wants it, released, and deleted once nobody has it any more."""

    is_wanted: bool
    waits_for: tuple[str, ...] = ()
    """Fabrics, sorted; none where it may be deleted."""

    @property
    def is_over(self) -> bool:
        return not self.is_wanted and not self.waits_for


def pkey_of(claim: NetworkClaim) -> int | None:
    """The P_Key that is claimed; None if the claim is of something else, or its name is not that of its value."""
    if claim.spec.type != "PKey":
        return None
    try:
        pkey = int(claim.spec.value, 16)
    except ValueError:
        return None
    return pkey if FIRST_PKEY <= pkey <= LAST_PKEY and claim.name == pkey_claim(pkey) else None


def wants_partition(vpc: VPC | None) -> bool:
    return (
        vpc is not None
        and vpc.metadata.deletion_timestamp is None
        and vpc.spec.infiniband is not None
        and vpc.spec.infiniband.partition
    )


def holder_of(vpc: VPC) -> ClaimHolder:
    return ClaimHolder(kind="VPC", namespace=vpc.metadata.namespace or "", name=vpc.name, uid=vpc.metadata.uid or "")


def held_pkeys(claims: Iterable[NetworkClaim]) -> dict[ClaimHolder, int]:
    """The P_Key of each holder that still has one; the lowest where, after a crash, there are two."""
    held: dict[ClaimHolder, int] = {}
    for claim in claims:
        pkey = pkey_of(claim)
        if pkey is not None and claim.status.released_time is None:
            held[claim.spec.holder] = min(pkey, held.get(claim.spec.holder, pkey))
    return held


def choose_pkey(ranges: Sequence[PKeyRange], taken: Collection[int]) -> int | None:
    """The lowest P_Key that nobody has claimed, in the order of the ranges; None if there is none."""
    return next((pkey for pkey in _open_pkeys(ranges) if pkey not in taken), None)


def count_pkeys(ranges: Sequence[PKeyRange], claims: Iterable[NetworkClaim]) -> PKeyCounts:
    states = {pkey: claim for claim in claims if (pkey := pkey_of(claim)) is not None}
    released = sum(claim.status.released_time is not None for claim in states.values())
    free = sum(pkey not in states for pkey in _open_pkeys(ranges))
    return PKeyCounts(taken=len(states) - released, quarantined=released, free=free)


def _open_pkeys(ranges: Iterable[PKeyRange]) -> Iterator[int]:
    return (pkey for each in ranges if not each.closed for pkey in range(each.first, each.last + 1))


def count_of(namespace: str | None, claims: Iterable[NetworkClaim]) -> int:
    """How many P_Keys a tenant's VPCs have."""
    return sum(1 for each in claims if pkey_of(each) is not None and each.spec.holder.namespace == namespace)


def decide_release(
    claim: NetworkClaim,
    vpc: VPC | None,
    networks: Iterable[InfiniBandNetwork],
    held: Mapping[ClaimHolder, int],
) -> Release:
    """What becomes of a P_Key's claim. `vpc`: what has the holder's name now; `networks`: those of all fabrics.

    A fabric knows it no more once its network is without it, was acknowledged so, and was read back after the release
    without finding it at any port. A network that nobody reads back keeps it in quarantine.
    """
    pkey = pkey_of(claim)
    if pkey is None:
        return Release(is_wanted=True)  # not this controller's
    holder = claim.spec.holder
    released = read_time(claim.status.released_time)
    if released is None and vpc is not None and wants_partition(vpc) and holder_of(vpc) == holder:
        return Release(is_wanted=held.get(holder) == pkey, waits_for=())
    return Release(
        is_wanted=False,
        waits_for=tuple(sorted(each.name for each in networks if not _is_rid_of(each, pkey, released))),
    )


def _is_rid_of(network: InfiniBandNetwork, pkey: int, released: datetime | None) -> bool:
    status = network.status
    return (
        released is not None
        and all(partition.pkey != pkey for partition in network.spec.partitions)
        and status.observed_generation == network.metadata.generation
        and pkey not in status.pkeys
        and status.read_time is not None
        and parse_time(status.read_time) >= released
    )
