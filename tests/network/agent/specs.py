"""Specs of DPUs, as the controller compiles them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from provisioner.api.network.dpu_network import DPUVPC, DPUNetworkSpec, DPUPort, PortRule, RemotePrefixes
from provisioner.api.network.vpc_attachment import ForwardingState
from tests.network.agent.rack import gateway, mac_of

BLUE, RED = 10001, 10002
ONE, TWO = "192.0.2.1", "192.0.2.2"


def vpc(
    vni: int = BLUE,
    *,
    remotes: Mapping[str, Iterable[str]] | None = None,
    mtu: int = 1450,
    peers: Iterable[int] = (),
    members: Iterable[str] | None = None,
) -> DPUVPC:
    """`remotes`: prefixes by DPU, from which packets are taken, too, unless `members` says otherwise."""
    behind = dict(remotes or {})
    return DPUVPC(
        vni=vni,
        vpc=f"tenant-{vni}/main",
        mtu_bytes=mtu,
        remotes=tuple(RemotePrefixes(vtep=vtep, prefixes=tuple(prefixes)) for vtep, prefixes in sorted(behind.items())),
        members=tuple(sorted(behind if members is None else members)),
        peer_vnis=tuple(peers),
    )


def port(
    *addresses: str,
    vtep: str = ONE,
    function: str = "pf0",
    vni: int = BLUE,
    state: ForwardingState = "Tenant",
    rules: Iterable[PortRule] = (),
    prefixes: Iterable[str] = (),
) -> DPUPort:
    return DPUPort(
        function=function,
        vni=vni,
        state=state,
        mac_address=mac_of(vtep, function),
        addresses=addresses,
        gateways=tuple(gateway(address) for address in addresses),
        prefixes=tuple(prefixes),
        rules=tuple(rules),
    )


def spec(vpcs: Iterable[DPUVPC], ports: Iterable[DPUPort], vtep: str = ONE) -> DPUNetworkSpec:
    return DPUNetworkSpec(vtep_address=vtep, vpcs=tuple(vpcs), ports=tuple(ports))


def in_spaces(told: DPUNetworkSpec, spaces: Mapping[int, Iterable[str]]) -> DPUNetworkSpec:
    """`spaces`: of each VPC that in which all must lie that is announced of it."""
    return replace(told, vpcs=tuple(replace(each, space=tuple(spaces.get(each.vni, ()))) for each in told.vpcs))
