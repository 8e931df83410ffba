"""What the DPU takes from the underlay: VXLAN of the VNIs that it has, each from the DPUs that have it, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Final

from provisioner.network.agent.model.state import Chain, Hook
from provisioner.network.agent.rules.canonical import rule
from provisioner.network.agent.rules.expressions import (
    ACCEPT,
    DROP,
    differs,
    field,
    goto,
    match,
    meta,
    networks,
    one_of,
    raw,
    verdict_of,
)

VXLAN_PORT: Final = 4789
_BEFORE_FILTERS: Final = -10
_VXLAN: Final = "vxlan_packets"
_VNI: Final = raw("th", 96, 24)  # 8 bytes of UDP, 4 of VXLAN's flags


def underlay_chains(vtep: str, members: Mapping[int, Iterable[str]]) -> list[Chain]:
    """`members`: of each VNI the DPUs from which its packets are taken."""
    verdicts = {vni: goto(_name(vni)) for vni in sorted(members)}
    by_vni = [rule(verdict_of(_VNI, verdicts))] if verdicts else []
    chains = [
        Chain(
            "inet",
            "underlay",
            Hook("input", _BEFORE_FILTERS, "accept"),
            (rule(match(field("udp", "dport"), VXLAN_PORT), goto(_VXLAN)),),
        ),
        Chain("inet", _VXLAN, None, (rule(differs(field("ip", "daddr"), vtep), DROP), *by_vni, rule(DROP))),
    ]
    for vni, vteps in sorted(members.items()):
        known = [ip_network(each) for each in vteps]
        taken = [rule(match(field("ip", "saddr"), networks(known)), ACCEPT)] if known else []
        chains.append(Chain("inet", _name(vni), None, (*taken, rule(DROP))))
    return chains


def isolation_chains(devices: Iterable[str]) -> list[Chain]:
    """Nothing is sent to an isolated port, neither by the DPU nor through it."""
    found = sorted(devices)
    if not found:
        return []
    sent = (rule(match(meta("oifname"), one_of(found)), DROP),)
    return [
        Chain("inet", "isolated_output", Hook("output", 0, "accept"), sent),
        Chain("inet", "isolated_forward", Hook("forward", _BEFORE_FILTERS, "accept"), sent),
    ]


def _name(vni: int) -> str:
    return f"vni_{vni}"
