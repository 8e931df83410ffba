"""NetworkPool: the identifiers that tenant networks are given, out of ranges that only grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from provisioner.api.infiniband_rules import FIRST_PKEY, LAST_PKEY
from provisioner.api.meta import Condition, ObjectMeta, Resource
from provisioner.api.schema import Column, Kind, Rule, described

THE_POOL: Final = "default"
"""There is one: what two pools hold might overlap."""

_IN_ORDER: Final = Rule(
    "self.first <= self.last",
    "the range is reversed: first must not be greater than last",
    field=".last",
)
_ONLY_GROW: Final = (
    Rule(
        "self.all(a, self.exists_one(b, b.first <= a.last && a.first <= b.last))",
        "two ranges overlap: give each its own identifiers",
    ),
    Rule(
        "oldSelf.all(o, self.exists(n, n.first <= o.first && n.last >= o.last))",
        "a range only grows, for its identifiers may be in use: to take no more of it, set closed to true",
    ),
)


def _bound(doc: str, first: int, last: int) -> Any:
    return described(doc, minimum=first, maximum=last)


def _closed() -> Any:
    return described("Whether no more are taken out of it; those in use stay until they are released.", default=False)


@dataclass(frozen=True, kw_only=True)
class VNIRange:
    """VXLAN network identifiers from `first` to `last`."""

    RULES: ClassVar[tuple[Rule, ...]] = (_IN_ORDER,)
    first: int = _bound("First identifier of the range.", 1, 16777215)
    last: int = _bound("Last identifier of the range.", 1, 16777215)
    closed: bool = _closed()


@dataclass(frozen=True, kw_only=True)
class PKeyRange:
    """P_Keys of InfiniBand from `first` to `last`, as decimal numbers without the bit of membership: 257 is 0x0101."""

    RULES: ClassVar[tuple[Rule, ...]] = (_IN_ORDER,)
    first: int = _bound("First P_Key of the range.", FIRST_PKEY, LAST_PKEY)
    last: int = _bound("Last P_Key of the range.", FIRST_PKEY, LAST_PKEY)
    closed: bool = _closed()


@dataclass(frozen=True, kw_only=True)
class NetworkPoolSpec:
    """The ranges."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(oldSelf.pkeyRanges) || oldSelf.pkeyRanges.size() == 0 || has(self.pkeyRanges)",
            "a range only grows, for its identifiers may be in use: to take no more of it, set closed to true",
            field=".pkeyRanges",
        ),
    )
    vni_ranges: tuple[VNIRange, ...] = described(
        "VXLAN network identifiers that nobody else on the underlay uses. A range is never taken away or made smaller: "
        "close it.",
        min_items=1,
        max_items=16,
        rules=_ONLY_GROW,
    )
    pkey_ranges: tuple[PKeyRange, ...] = described(
        "P_Keys that nobody else on any InfiniBand fabric uses, 1 to 32766 (0x7ffe). A range is never taken away or "
        "made smaller: close it.",
        default=(),
        max_items=16,
        rules=_ONLY_GROW,
    )


@dataclass(frozen=True, kw_only=True)
class NetworkPoolStatus:
    """What of it is in use."""

    taken_vnis: int | None = described("Identifiers that VPCs have.", default=None)
    quarantined_vnis: int | None = described(
        "Identifiers of VPCs that are gone, while a DPU has not confirmed that it knows them no more.", default=None
    )
    free_vnis: int | None = described("Identifiers that the next VPCs can have.", default=None)
    taken_pkeys: int | None = described("P_Keys that VPCs have.", default=None)
    quarantined_pkeys: int | None = described(
        "P_Keys of VPCs that are gone, while a fabric has not confirmed that it knows them no more.", default=None
    )
    free_pkeys: int | None = described("P_Keys that the next VPCs can have.", default=None)
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
            Column("P_Keys", ".status.takenPkeys", type="integer", priority=1),
            Column("Free P_Keys", ".status.freePkeys", type="integer", priority=1),
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
