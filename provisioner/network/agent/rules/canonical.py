"""One form for each rule, however nft prints it: prefixes are ranges, ranges that touch are one, sets have an order.

nft merges intervals, prints /32 as an address and a set in the kernel's order; from 1.0.7 on it knows the target of a
neighbour solicitation by its name. Two rules have the same form only if
they say the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final

from provisioner.network.agent.model.state import NftRule

Expression = dict[str, Any]
_Address = IPv4Address | IPv6Address

_ND_TARGET: Final = {"payload": {"protocol": "icmpv6", "field": "taddr"}}
_ND_TARGET_RAW: Final = {"payload": {"base": "th", "offset": 64, "len": 128}}


def rule(*expressions: Expression) -> NftRule:
    return NftRule(canonical(expressions), json.dumps(expressions))


def canonical(expressions: Iterable[Any]) -> str:
    """The form, as a text to compare and to read."""
    return json.dumps([_one_form(each) for each in expressions], sort_keys=True, separators=(",", ":"))


def _one_form(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"set"}:
            return _set(value["set"])
        if set(value) in ({"prefix"}, {"range"}):
            return _set([value])
        if value == _ND_TARGET:
            return _ND_TARGET_RAW
        if "left" in value and _one_form(value["left"]) == _ND_TARGET_RAW:
            value = {**value, "right": _as_addresses(value.get("right"))}
        return {key: _one_form(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_one_form(item) for item in value]
    return _set([value]) if isinstance(value, str) and _address(value) is not None else value


def _as_addresses(right: Any) -> Any:
    """An address that nft took for a number, 0x and 32 digits."""
    if isinstance(right, dict) and set(right) == {"set"}:
        return {"set": [_as_addresses(each) for each in right["set"]]}
    if isinstance(right, str) and right.startswith("0x"):
        return str(IPv6Address(int(right, 16)))
    return right


def _set(items: Any) -> Any:
    """Of addresses or numbers the ranges, merged; of anything else the items in order. One alone is no set."""
    items = items if isinstance(items, list) else [items]
    ranges = [_range(item) for item in items]
    known = [each for each in ranges if each is not None]
    if len(known) == len(items) and len({type(low) for low, _ in known}) == 1:
        found = merged(sorted(known, key=lambda each: int(each[0])))
        form: list[Any] = [str(low) if low == high else f"{low}-{high}" for low, high in sorted(found)]
    else:
        form = sorted((_one_form(item) for item in items), key=lambda each: json.dumps(each, sort_keys=True))
    return form[0] if len(form) == 1 else {"set": form}


def merged(ranges: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Sorted ranges of addresses or numbers; those that touch become one."""
    found: list[tuple[Any, Any]] = []
    for low, high in ranges:
        if found and int(low) <= int(found[-1][1]) + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def _range(item: Any) -> tuple[Any, Any] | None:
    if isinstance(item, int) and not isinstance(item, bool):
        return item, item
    if isinstance(item, str):
        address = _address(item)
        return None if address is None else (address, address)
    if isinstance(item, dict) and set(item) == {"prefix"}:
        prefix = item["prefix"]
        network = ip_network(f"{prefix['addr']}/{prefix['len']}")
        return network[0], network[-1]
    if isinstance(item, dict) and set(item) == {"range"}:
        bounds = [_range(bound) for bound in item["range"]]
        if len(bounds) == 2 and bounds[0] is not None and bounds[1] is not None:
            return bounds[0][0], bounds[1][1]
    return None


def _address(word: str) -> _Address | None:
    if "." not in word and ":" not in word:
        return None
    try:
        return ip_address(word)
    except ValueError:
        return None
