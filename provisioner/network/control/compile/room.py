"""What of all that a DPU is to enforce fits into its one object. Pure.

A DPU has several tenants where functions of its card are given to others. Who asks for much goes without before who
asks for little: nobody is isolated for what another tenant has made.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Final, TypeVar

from provisioner.api.dpu_network import DPUVPC, DPUPort, RemotePrefixes
from provisioner.network.control.compile.security import size_of_rule

K = TypeVar("K", int, str)

MOST_PORTS: Final = 256
MOST_BYTES_OF_RULES: Final = 524288
"""Of all ports together. An object of the API server has 1.5 MiB."""
MOST_BYTES_OF_REACH: Final = 524288
"""Of what all VPCs together reach behind other DPUs."""
MOST_DPUS: Final = 4096
"""In one VPC, and prefixes behind one of them."""


def fitting_domains(domains: Iterable[DPUVPC]) -> tuple[list[DPUVPC], set[int]]:
    """By VNI; and the VNIs of those that do not fit, which reach nothing."""
    domains = sorted(domains, key=lambda each: each.vni)
    sizes = {each.vni: (tenant_of(each), _size_of_reach(each)) for each in domains}
    fits = _fitting(sizes, MOST_BYTES_OF_REACH)
    found = [
        replace(each, peer_vnis=tuple(vni for vni in each.peer_vnis if vni in fits))
        if each.vni in fits
        else replace(each, remotes=(), members=(), peer_vnis=(), space=())
        for each in domains
    ]
    return found, sizes.keys() - fits


def fitting_ports(ports: Iterable[DPUPort], tenants: dict[int, str]) -> list[DPUPort]:
    """By function; one whose rules do not fit lets nothing pass. tenants: by VNI."""
    kept = sorted(ports, key=lambda each: each.function)[:MOST_PORTS]
    sizes = {each.function: (tenants.get(each.vni, ""), _size_of_rules(each)) for each in kept}
    fits = _fitting(sizes, MOST_BYTES_OF_RULES)
    return [each if each.function in fits else isolated(each) for each in kept]


def isolated(port: DPUPort) -> DPUPort:
    """As it is told when there is no room for it."""
    return replace(port, state="Isolated", rules=()) if port.state == "Tenant" else port


def tenant_of(domain: DPUVPC) -> str:
    return domain.vpc.partition("/")[0]


def _fitting(sizes: dict[K, tuple[str, int]], most: int) -> set[K]:
    """sizes: tenant and bytes of each."""
    together: defaultdict[str, int] = defaultdict(int)
    for tenant, size in sizes.values():
        together[tenant] += size
    found, left = set(), most
    for key, (_, size) in sorted(sizes.items(), key=lambda item: (together[item[1][0]], item[1][1], item[0])):
        if size <= left:
            found.add(key)
            left -= size
    return found


def _size_of_reach(domain: DPUVPC) -> int:
    """More than there is room for if one of its lists is longer than it may be."""
    if max(len(domain.remotes), len(domain.members)) > MOST_DPUS:
        return MOST_BYTES_OF_REACH + 1
    told = sum(map(_size_of_remote, domain.remotes)) + 18 * len(domain.members)
    return told + sum(len(prefix) + 3 for prefix in domain.space)


@lru_cache(maxsize=16384)
def _size_of_remote(remote: RemotePrefixes) -> int:
    if len(remote.prefixes) > MOST_DPUS:
        return MOST_BYTES_OF_REACH + 1
    return 48 + sum(len(prefix) + 3 for prefix in remote.prefixes)


def _size_of_rules(port: DPUPort) -> int:
    return sum(size_of_rule(rule.ports, rule.cidrs) for rule in port.rules)
