"""NetworkPool: the identifiers that tenant networks are given, out of ranges that only grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from provisioner.api.meta import Condition, ObjectMeta, Resource
from provisioner.api.schema import Column, Kind, Rule, described

THE_POOL: Final = "default"
"""There is one: what two pools hold might overlap."""


@dataclass(frozen=True, kw_only=True)
class VNIRange:
    """VXLAN network identifiers from `first` to `last`."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.first <= self.last",
            "the range is reversed: first must not be greater than last",
            field=".last",
        ),
    )
    first: int = described("First identifier of the range.", minimum=1, maximum=16777215)
    last: int = described("Last identifier of the range.", minimum=1, maximum=16777215)
    closed: bool = described(
        "Whether no more are taken out of it; those in use stay until they are released.", default=False
    )


@dataclass(frozen=True, kw_only=True)
class NetworkPoolSpec:
    """The ranges."""

    vni_ranges: tuple[VNIRange, ...] = described(
        "VXLAN network identifiers that nobody else on the underlay uses. A range is never taken away or made smaller: "
        "close it.",
        min_items=1,
        max_items=16,
        rules=(
            Rule(
                "self.all(a, self.exists_one(b, b.first <= a.last && a.first <= b.last))",
                "two ranges overlap: give each its own identifiers",
            ),
            Rule(
                "oldSelf.all(o, self.exists(n, n.first <= o.first && n.last >= o.last))",
                "a range only grows, for its identifiers may be in use: to take no more of it, set closed to true",
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class NetworkPoolStatus:
    """What of it is in use."""

    taken_vnis: int | None = described("Identifiers that VPCs have.", default=None)
    quarantined_vnis: int | None = described(
        "Identifiers of VPCs that are gone, while a DPU has not confirmed that it knows them no more.", default=None
    )
    free_vnis: int | None = described("Identifiers that the next VPCs can have.", default=None)
    conditions: tuple[Condition, ...] = described("Observations.", default=(), max_items=32, list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class NetworkPool(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="NetworkPool",
        plural="networkpools",
        short="netpool",
        description="The identifiers that tenant networks are given; there is one, named default.",
        columns=(
            Column("Taken", ".status.takenVnis", type="integer"),
            Column("Quarantined", ".status.quarantinedVnis", type="integer"),
            Column("Free", ".status.freeVnis", type="integer"),
            Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
            Column("Age", ".metadata.creationTimestamp", type="date"),
        ),
        rules=(
            Rule(
                f"self.metadata.name == '{THE_POOL}'",
                "there is one NetworkPool, and its name is default: add the ranges to that one",
            ),
        ),
    )
    metadata: ObjectMeta
    spec: NetworkPoolSpec
    status: NetworkPoolStatus = NetworkPoolStatus()
