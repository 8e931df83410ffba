"""Whether the fabric does what it shall: what is wanted, beside the P_Key tables that were read back. Pure.

Source: InfiniBand Architecture Specification 1.7, 10.9.3: bit 15 of a table's entry says full membership; two limited
members of a partition do not reach one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from provisioner.api.machinery.wording import quantity
from provisioner.api.network.infiniband_network import InfiniBandNetworkSpec
from provisioner.api.network.infiniband_rules import DEFAULT_PKEY

FULL: Final = 0x8000
"""Bit of full membership. The others are the P_Key."""
DEFAULT_FULL: Final = FULL | DEFAULT_PKEY
NAMED: Final = 3
"""So many examples stand in a message."""

Limited = Literal["Yes", "No", "Unknown"]


@dataclass(frozen=True, kw_only=True)
class PortKeys:
    """The P_Key table of one port."""

    keys: frozenset[int]
    """Entries, with the bit of membership; free slots (0x0000) are left out."""
    kind: Literal["Host", "Switch", "SubnetManager"] = "Host"
    """SubnetManager: the port of a subnet manager, which is a full member of the default partition by necessity."""


@dataclass(frozen=True, kw_only=True)
class FabricView:
    """What was read back."""

    ports: Mapping[str, PortKeys]
    """By GUID."""
    is_complete: bool = True
    """Whether ports that are not there are not on the fabric. UFM names members, not ports."""
    default_limited: Limited | None = None
    """Whether the default partition makes its members limited ones, where what was read says so itself."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Where the fabric differs from what is wanted. Pairs are GUID and entry, sorted."""

    surplus: tuple[tuple[str, int], ...] = ()
    """Ports that are members of what they shall not be in: tenants are not apart."""
    lacking: tuple[tuple[str, int], ...] = ()
    """Ports on the fabric that are no members of what they shall be in."""
    absent: tuple[str, ...] = ()
    """Ports that shall be in a partition and are not on the fabric."""
    full_by_default: tuple[str, ...] = ()
    """Ports that are full members of the default partition, and so reach all others whatever their VPC is."""
    default_limited: Limited = "Yes"
    pkeys: tuple[int, ...] = ()
    """P_Keys that the fabric knows, but for the default one; sorted."""

    @property
    def agrees(self) -> bool:
        return not self.surplus and not self.lacking

    @property
    def words(self) -> str:
        """What differs, for people; empty where nothing does."""
        parts = []
        if self.surplus:
            parts.append(f"{quantity(len(self.surplus), 'membership')} that nobody wants ({_examples(self.surplus)})")
        if self.lacking:
            parts.append(f"{quantity(len(self.lacking), 'that is', 'that are')} missing ({_examples(self.lacking)})")
        return ", ".join(parts)


def is_ours(spec: InfiniBandNetworkSpec, pkey: int) -> bool:
    """Whether a partition is under our hand. All of an OpenSM's are; of a UFM's those with P_Keys of the pool."""
    return spec.manager == "OpenSM" or any(each.first <= pkey <= each.last for each in spec.pkey_ranges)


def wanted_keys(spec: InfiniBandNetworkSpec) -> dict[str, frozenset[int]]:
    """Of each port that is in a partition, its entries beside that of the default partition."""
    keys: dict[str, set[int]] = {}
    for partition in spec.partitions:
        for guid in partition.guids:
            keys.setdefault(guid, set()).add(FULL | partition.pkey)
    return {guid: frozenset(found) for guid, found in keys.items()}


def compare(spec: InfiniBandNetworkSpec, view: FabricView) -> Findings:
    """Every port of the fabric is looked at, those of servers that nobody registered among them."""
    wanted = wanted_keys(spec)
    surplus, lacking, full = list[tuple[str, int]](), list[tuple[str, int]](), list[str]()
    for guid, port in view.ports.items():
        own = {key for key in port.keys if key & DEFAULT_PKEY != DEFAULT_PKEY}
        surplus += [
            (guid, key) for key in own - wanted.get(guid, frozenset()) if guid in wanted or is_ours(spec, key & ~FULL)
        ]
        lacking += [(guid, key) for key in wanted.get(guid, frozenset()) - own]
        if DEFAULT_FULL in port.keys and port.kind == "Host" and guid not in spec.shared_guids:
            full.append(guid)
    missing = sorted(wanted.keys() - view.ports.keys())
    if not view.is_complete:
        lacking += [(guid, key) for guid in missing for key in wanted[guid]]
    return Findings(
        surplus=tuple(sorted(surplus)),
        lacking=tuple(sorted(lacking)),
        absent=tuple(missing) if view.is_complete else (),
        full_by_default=tuple(sorted(full)),
        default_limited=_limited(view, full),
        pkeys=tuple(sorted({key & ~FULL for port in view.ports.values() for key in port.keys} - {DEFAULT_PKEY, 0})),
    )


def _limited(view: FabricView, full: list[str]) -> Limited:
    if full or view.default_limited == "No":
        return "No"
    if view.default_limited is not None:
        return view.default_limited
    return "Yes" if view.ports else "Unknown"


def _examples(pairs: tuple[tuple[str, int], ...]) -> str:
    named = ", ".join(
        f"{guid} {'in' if key & FULL else 'limited in'} 0x{key & ~FULL:04x}" for guid, key in pairs[:NAMED]
    )
    return named + (", …" if len(pairs) > NAMED else "")
