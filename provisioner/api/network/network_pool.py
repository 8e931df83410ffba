"""NetworkPool: the identifiers that tenant networks are given, out of ranges that only grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from provisioner.api.machinery.meta import Condition, Resource
from provisioner.api.machinery.rules import IPV4_RULES
from provisioner.api.machinery.schema import (
    IPV4_PATTERN,
    CelRule,
    Column,
    FieldSchema,
    Kind,
    described,
    listed,
    optional,
)
from provisioner.api.network.infiniband_rules import FIRST_PKEY, LAST_PKEY

THE_POOL: Final = "default"
"""There is one: what two pools hold might overlap."""
LARGEST_ASN: Final = 65535
"""A route target with a VNI of four bytes has two bytes left for the number of the autonomous system."""
LARGEST_EVPN_VNI: Final = (1 << 20) - 1
"""What a label of EVPN has room for."""

_IN_ORDER: Final = CelRule(
    "self.first <= self.last",
    "the range is reversed: first must not be greater than last",
    field=".last",
)
_ONLY_GROW: Final = (
    CelRule(
        "self.all(a, self.exists_one(b, b.first <= a.last && a.first <= b.last))",
        "two ranges overlap: give each its own identifiers",
    ),
    CelRule(
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

    RULES: ClassVar[tuple[CelRule, ...]] = (_IN_ORDER,)
    first: int = _bound("First identifier of the range.", 1, 16777215)
    last: int = _bound("Last identifier of the range.", 1, 16777215)
    closed: bool = _closed()


@dataclass(frozen=True, kw_only=True)
class PKeyRange:
    """P_Keys of InfiniBand from `first` to `last`, as decimal numbers without the bit of membership: 257 is 0x0101."""

    RULES: ClassVar[tuple[CelRule, ...]] = (_IN_ORDER,)
    first: int = _bound("First P_Key of the range.", FIRST_PKEY, LAST_PKEY)
    last: int = _bound("Last P_Key of the range.", FIRST_PKEY, LAST_PKEY)
    closed: bool = _closed()


@dataclass(frozen=True, kw_only=True)
class RouteDistribution:
    """By what each DPU is told which addresses are behind which other one."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "self.type != 'EVPN' || (has(self.asn) && has(self.reflectors) && self.reflectors.size() > 0)",
            "EVPN needs asn, and reflectors with the address of a route reflector at least: add both, or set type to "
            "APIServer",
        ),
    )
    type: Literal["APIServer", "EVPN"] = described(
        "APIServer: in its DPUNetwork. EVPN: by the other DPUs themselves, over route reflectors, by FRR's bgpd on "
        "each DPU; from whom it takes packets of a VPC it is told by the API server all the same.",
        server_default="APIServer",
    )
    asn: int | None = optional(
        "Number of the autonomous system that DPUs and reflectors are in.", minimum=1, maximum=LARGEST_ASN
    )
    reflectors: tuple[str, ...] = listed(
        "Addresses of the route reflectors on the underlay, each of which runs `provisioner reflector`.",
        max_items=4,
        item=FieldSchema(doc="An address on the underlay.", max_length=15, pattern=IPV4_PATTERN, rules=IPV4_RULES),
    )


@dataclass(frozen=True, kw_only=True)
class NetworkPoolSpec:
    """The ranges, and how routes are told."""

    RULES: ClassVar[tuple[CelRule, ...]] = (
        CelRule(
            "!has(self.routeDistribution) || self.routeDistribution.type != 'EVPN' || "
            f"self.vniRanges.all(r, r.last <= {LARGEST_EVPN_VNI})",
            f"EVPN has room for VNIs up to {LARGEST_EVPN_VNI}: a range goes beyond that, so that the type must stay "
            "APIServer",
            field=".routeDistribution",
        ),
        CelRule(
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
    pkey_ranges: tuple[PKeyRange, ...] = listed(
        "P_Keys that nobody else on any InfiniBand fabric uses, 1 to 32766 (0x7ffe). A range is never taken away or "
        "made smaller: close it.",
        max_items=16,
        rules=_ONLY_GROW,
    )
    route_distribution: RouteDistribution | None = optional(
        "By what DPUs are told of each other's addresses; by the API server without it."
    )

    @property
    def evpn(self) -> RouteDistribution | None:
        """How routes go by EVPN; None where they do not."""
        chosen = self.route_distribution
        return chosen if chosen is not None and chosen.type == "EVPN" and chosen.asn is not None else None


@dataclass(frozen=True, kw_only=True)
class NetworkPoolStatus:
    """What of it is in use."""

    taken_vnis: int | None = optional("Identifiers that VPCs have.")
    quarantined_vnis: int | None = optional(
        "Identifiers of VPCs that are gone, while a DPU has not confirmed that it knows them no more."
    )
    free_vnis: int | None = optional("Identifiers that the next VPCs can have.")
    taken_pkeys: int | None = optional("P_Keys that VPCs have.")
    quarantined_pkeys: int | None = optional(
        "P_Keys of VPCs that are gone, while a fabric has not confirmed that it knows them no more."
    )
    free_pkeys: int | None = optional("P_Keys that the next VPCs can have.")
    conditions: tuple[Condition, ...] = listed("Observations.", max_items=32, list_map_keys=("type",))


@dataclass(frozen=True, kw_only=True)
class NetworkPool(Resource):
    KIND: ClassVar[Kind] = Kind(
        kind="NetworkPool",
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
            CelRule(
                f"self.metadata.name == '{THE_POOL}'",
                "there is one NetworkPool, and its name is default: add the ranges to that one",
            ),
        ),
    )
    spec: NetworkPoolSpec
    status: NetworkPoolStatus = NetworkPoolStatus()
