"""The words of libnftables' JSON that the rules are made of. Source: libnftables-json(5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, collapse_addresses
from typing import Any

from provisioner.network.agent.rules.canonical import Expression

Network = IPv4Network | IPv6Network

ACCEPT: Expression = {"accept": None}
DROP: Expression = {"drop": None}
RETURN: Expression = {"return": None}


def goto(chain: str) -> Expression:
    return {"goto": {"target": chain}}


def jump(chain: str) -> Expression:
    return {"jump": {"target": chain}}


def meta(key: str) -> Expression:
    return {"meta": {"key": key}}


def field(protocol: str, name: str) -> Expression:
    """A field of a header, such as ip saddr."""
    return {"payload": {"protocol": protocol, "field": name}}


def raw(base: str, offset_bits: int, length_bits: int) -> Expression:
    """Bits of the packet, counted from a header: ll, nh or th."""
    return {"payload": {"base": base, "offset": offset_bits, "len": length_bits}}


def ct(key: str) -> Expression:
    return {"ct": {"key": key}}


def match(left: Expression, right: Any, operator: str = "==") -> Expression:
    return {"match": {"op": operator, "left": left, "right": right}}


def differs(left: Expression, right: Any) -> Expression:
    return match(left, right, "!=")


def one_of(values: Sequence[Any]) -> Any:
    """A set of values; one alone is itself."""
    return values[0] if len(values) == 1 else {"set": list(values)}


def networks(found: Iterable[Network]) -> Any:
    """Addresses of one family, as few prefixes as they can be."""
    return one_of([_prefix(network) for network in collapse_addresses(found)])  # type: ignore[type-var]


def _prefix(network: Network) -> Any:
    if network.prefixlen == network.max_prefixlen:
        return str(network.network_address)
    return {"prefix": {"addr": str(network.network_address), "len": network.prefixlen}}


def verdict_of(key: Expression, verdicts: Mapping[Any, Expression]) -> Expression:
    """A map from what `key` is to what is to be done; what is not in it goes on to the next rule."""
    return {"vmap": {"key": key, "data": {"set": [[value, verdict] for value, verdict in verdicts.items()]}}}


def at_most(rate_per_second: int, burst: int) -> Expression:
    return {"limit": {"rate": rate_per_second, "burst": burst, "per": "second"}}
