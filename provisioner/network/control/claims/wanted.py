"""What a VPC and an attachment claim next, and what they let go of: pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import ip_address

from provisioner.api import VPC, NetworkClaim, NetworkPool, VPCAttachment
from provisioner.api.network.network_claim import ClaimedValue, address_claim, port_claim, vni_claim
from provisioner.api.network.network_pool import THE_POOL
from provisioner.network.control.compile.allocate import (
    Address,
    choose_address,
    choose_vni,
    count_free,
    judge_wish,
    subnets_of,
    versions_of,
)
from provisioner.network.control.compile.place import FunctionPlace
from provisioner.network.control.compile.room import MOST_PORTS
from provisioner.network.control.compile.trouble import Trouble
from provisioner.rules.shares import may_take

FindClaim = Callable[[str], NetworkClaim | None]
"""By name."""


@dataclass(frozen=True, kw_only=True)
class Want:
    """A value to claim."""

    name: str
    type: ClaimedValue
    value: str


@dataclass(frozen=True, kw_only=True)
class WantedClaims:
    """claims: to be made, by their names those that are there already left out. surplus: names of claims to let go of,
    once nothing is to be claimed any more. trouble: what keeps something from being claimed."""

    claims: tuple[Want, ...] = ()
    surplus: tuple[str, ...] = ()
    trouble: Trouble | None = None


def want_vni(
    vpc: VPC, pool: NetworkPool | None, held: Collection[int], find: FindClaim, claims: Collection[NetworkClaim]
) -> WantedClaims:
    """held: VNIs that the VPC has claimed; it keeps the one in its status, or the first. find: a claim by its name.
    claims: those of all VNIs, which may be older."""
    if held:
        kept = vpc.status.vni if vpc.status.vni in held else min(held)
        return WantedClaims(surplus=tuple(vni_claim(each) for each in sorted(held) if each != kept))
    if pool is None:
        words = f"there is no NetworkPool '{THE_POOL}' to take one out of; have the administrators make it"
        return _no_vni(vpc, "NoNetworkPool", words)
    vni = choose_vni(pool.spec.vni_ranges, str(vpc.metadata.uid), lambda each: find(vni_claim(each)) is not None)
    if vni is None:
        words = f"all of NetworkPool '{pool.name}' are in use, or not yet released"
        return _no_vni(vpc, "VNIsExhausted", f"{words}; have the administrators add a range to it")
    own = sum(1 for each in claims if each.spec.holder.namespace == vpc.metadata.namespace)
    free = count_free(pool.spec.vni_ranges, (int(each.spec.value) for each in claims))
    if not may_take(own, free):
        return _no_vni(
            vpc,
            "VNIShareExhausted",
            f"namespace '{vpc.metadata.namespace}' has {own} of NetworkPool '{pool.name}' already, {free} are left, "
            "and no tenant takes more than are left for all; delete a VPC, or have the administrators add a range",
        )
    return WantedClaims(claims=(Want(name=vni_claim(vni), type="VNI", value=str(vni)),))


def _no_vni(vpc: VPC, reason: str, why: str) -> WantedClaims:
    message = f"VPC '{vpc.name}' has no VXLAN network identifier: {why}"
    return WantedClaims(trouble=Trouble(reason=reason, message=message))


def vpc_trouble(attachment: VPCAttachment, vpc: VPC | None, vni: int | None) -> Trouble | None:
    """What of its VPC keeps an attachment from claiming anything. vni: the one that the VPC has."""
    if vpc is None:
        words = f"there is no VPC '{attachment.spec.vpc_ref}' in namespace '{attachment.metadata.namespace}', so "
        return Trouble(reason="VPCNotFound", message=f"{words}that nothing passes: make it, or delete this attachment")
    if vni is None:
        words = f"VPC '{vpc.name}' has no VXLAN network identifier yet: its condition Ready tells why"
        return Trouble(reason="WaitsForVPC", message=words)
    return None


def want_for_attachment(
    attachment: VPCAttachment,
    vpc: VPC,
    vni: int,
    at: FunctionPlace | Trouble,
    held: Collection[NetworkClaim],
    find: FindClaim,
    *,
    is_full: bool = False,
) -> WantedClaims:
    """held: claims of the attachment that are not released. find: a claim by its name, released ones too. is_full:
    whether no more functions of the DPU can be attached."""
    mine = {each.name for each in held}
    trouble = at if isinstance(at, Trouble) else None
    wants: list[Want] = []
    if isinstance(at, FunctionPlace):
        name = port_claim(at.dpu, at.function)
        other = find(name) if name not in mine else None
        if other is not None:
            trouble = _port_taken(attachment, at, other)
        elif is_full:
            trouble = _full(at)
        else:
            wants.append(Want(name=name, type="Port", value=at.value))
    kept = set(mine) if trouble is not None else set()

    def is_taken(address: Address) -> bool:
        return find(address_claim(vni, address)) is not None

    own = {ip_address(each.spec.value) for each in held if each.spec.type == "Address"}
    own = {each for each in own if address_claim(vni, each) in mine}
    for version in versions_of(vpc.spec.cidrs):
        subnets = subnets_of(vpc.spec.cidrs, version)
        have = sorted(each for each in own if each.version == version)
        wished = next((each for each in attachment.spec.addresses if ip_address(each).version == version), None)
        if wished is None and have:
            given = [each for each in have if str(each) in attachment.status.addresses]
            wants.append(_address(vni, str((given or have)[0])))
            continue
        if wished is None:
            # What nothing can be attached with is not taken from others.
            address = choose_address(subnets, str(attachment.metadata.uid), is_taken) if wants else None
            if address is not None:
                wants.append(_address(vni, str(address)))
            elif trouble is None:
                trouble = _exhausted(attachment, version)
            continue
        other_claim = find(address_claim(vni, ip_address(wished)))
        refusal = judge_wish(attachment.spec.vpc_ref, vpc.spec.cidrs, wished)
        if refusal is None and ip_address(wished) not in own and other_claim is not None:
            refusal = _address_taken(wished, other_claim)
        if refusal is None:
            wants.append(_address(vni, wished))
        else:
            trouble = trouble or refusal
            kept |= {address_claim(vni, each) for each in have}
    for wish in attachment.spec.addresses:
        if ip_address(wish).version not in versions_of(vpc.spec.cidrs):
            trouble = trouble or judge_wish(attachment.spec.vpc_ref, vpc.spec.cidrs, wish)
    keeps = kept | {each.name for each in wants}
    if isinstance(at, Trouble) or is_full:  # it keeps its addresses, and not what may be another's now
        keeps -= {each.name for each in held if each.spec.type == "Port"}
    return WantedClaims(
        claims=tuple(each for each in wants if each.name not in mine),
        surplus=tuple(sorted(mine - keeps)),
        trouble=trouble,
    )


def _full(at: FunctionPlace) -> Trouble:
    return Trouble(
        reason="DPUFull",
        message=f"DPU '{at.dpu}' enforces {MOST_PORTS} functions, of which as many are attached already as are for the "
        f"tenant of its server, and {at.function} is none of those that its administrators have named in "
        "spec.dpu.functions: attach another server, or delete attachments of this one",
    )


def _address(vni: int, address: str) -> Want:
    return Want(name=address_claim(vni, ip_address(address)), type="Address", value=address)


def _exhausted(attachment: VPCAttachment, version: int) -> Trouble:
    return Trouble(
        reason="AddressesExhausted",
        message=f"VPC '{attachment.spec.vpc_ref}' has no IPv{version} address left for attachment "
        f"'{attachment.name}': add a subnet to spec.cidrs of the VPC, or delete attachments",
    )


def _address_taken(address: str, other: NetworkClaim) -> Trouble:
    """The other one is of the same VPC, and so of the same namespace."""
    holder = other.spec.holder
    if other.status.released_time is not None:
        words = "not all DPUs have confirmed yet that they know it no more"
        return Trouble(reason="AddressNotReleased", message=_waits(f"address {address}", words, other))
    return Trouble(
        reason="AddressTaken",
        message=f"address {address} is that of VPCAttachment '{holder.name}': name another one in spec.addresses, or "
        "none, and one is chosen",
    )


def _port_taken(attachment: VPCAttachment, at: FunctionPlace, other: NetworkClaim) -> Trouble:
    holder, what = other.spec.holder, f"{at.function} of Server '{attachment.spec.server_ref}'"
    if other.status.released_time is not None:
        words = f"DPU '{at.dpu}' has not confirmed yet that the attachment before this one is gone"
        return Trouble(reason="PortNotReleased", message=_waits(what, words, None))
    if holder.namespace != attachment.metadata.namespace:
        return Trouble(
            reason="PortTaken",
            message=f"{what} is not free yet: it waits until what was attached there is let go of",
        )
    return Trouble(
        reason="PortTaken",
        message=f"{what} is attached already, by VPCAttachment '{holder.name}': delete that one, or attach another "
        "function",
    )


def _waits(what: str, words: str, claim: NetworkClaim | None) -> str:
    dpus = f" (waits for DPU {', '.join(claim.status.waits_for)})" if claim and claim.status.waits_for else ""
    return f"{what} is not free yet: {words}{dpus}; it goes on by itself"
