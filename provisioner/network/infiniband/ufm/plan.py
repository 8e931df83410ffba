"""What a UFM is to be told, of what is wanted and what it has. Pure.

Partitions whose P_Keys are not the pool's are somebody else's: nothing of them is touched, though a tenant's port in
one of them is told of.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from provisioner.api.network.infiniband_network import InfiniBandNetworkSpec
from provisioner.api.network.infiniband_rules import DEFAULT_PKEY
from provisioner.network.infiniband.model.verify import DEFAULT_FULL, FULL, FabricView, Limited, PortKeys, is_ours
from provisioner.network.infiniband.ufm.rest import UfmPartition


@dataclass(frozen=True, kw_only=True)
class UfmStep:
    """One change of one partition. `guids`: sorted; none where the partition is deleted."""

    action: Literal["Remove", "Delete", "Add"]
    pkey: int
    guids: tuple[str, ...] = ()
    ip_over_ib: bool = False


def plan_steps(spec: InfiniBandNetworkSpec, found: Iterable[UfmPartition]) -> tuple[UfmStep, ...]:
    """Ports are taken out of partitions before they are put into others, so that none is in two tenants' at a time.

    What is a limited member is added anew, as a full one. Running it again after it was done gives no steps.
    """
    wanted = {partition.pkey: partition for partition in spec.partitions if is_ours(spec, partition.pkey)}
    ours = {each.pkey: each for each in found if each.pkey != DEFAULT_PKEY and is_ours(spec, each.pkey)}
    removed, deleted, added = list[UfmStep](), list[UfmStep](), list[UfmStep]()
    for pkey, partition in sorted(ours.items()):
        if pkey not in wanted:
            deleted.append(UfmStep(action="Delete", pkey=pkey))
        elif surplus := partition.members.keys() - set(wanted[pkey].guids):
            removed.append(UfmStep(action="Remove", pkey=pkey, guids=tuple(sorted(surplus))))
    for pkey, want in sorted(wanted.items()):
        members = ours[pkey].members if pkey in ours else {}
        if lacking := {guid for guid in want.guids if members.get(guid) != "full"}:
            added.append(UfmStep(action="Add", pkey=pkey, guids=tuple(sorted(lacking)), ip_over_ib=want.ip_over_ib))
    return (*removed, *deleted, *added)


def view_of(found: Iterable[UfmPartition]) -> FabricView:
    """What UFM says of the fabric.

    Of the default partition's full members only those count that are in another partition, too: which of the others are
    switches and subnet managers, UFM does not say.
    """
    keys: dict[str, set[int]] = {}
    limited: Limited = "Unknown"
    full_by_default: set[str] = set()
    for partition in found:
        if partition.pkey == DEFAULT_PKEY:
            full_by_default = {guid for guid, membership in partition.members.items() if membership == "full"}
            if partition.membership is not None:
                limited = "Yes" if partition.membership == "limited" else "No"
            continue
        for guid, membership in partition.members.items():
            keys.setdefault(guid, set()).add(partition.pkey | (FULL if membership == "full" else 0))
    for guid in full_by_default & keys.keys():
        keys[guid].add(DEFAULT_FULL)
    return FabricView(
        ports={guid: PortKeys(keys=frozenset(found_keys)) for guid, found_keys in keys.items()},
        is_complete=False,
        default_limited=limited,
    )


def knows(found: Iterable[UfmPartition]) -> tuple[int, ...]:
    """P_Keys that UFM has a partition of, members or not, but for the default one; sorted."""
    return tuple(sorted({each.pkey for each in found} - {DEFAULT_PKEY, 0}))
