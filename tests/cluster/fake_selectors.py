"""Selectors and patches as the API server understands them, for FakeCluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.cluster.fake_apply import copy_json
from tests.cluster.fake_schema import Schema, child

_IN = re.compile(r"^\s*(\S+)\s+(in|notin)\s+\(([^)]*)\)\s*$")


def matches_fields(item: Mapping[str, Any], selector: str | None) -> bool:
    """Field selectors: `metadata.name=a,spec.nodeName!=b`."""
    for term in filter(None, (selector or "").split(",")):
        path, sign, wanted = re.split(r"(!=|==|=)", term, maxsplit=1)
        value: Any = item
        for part in path.split("."):
            value = (value or {}).get(part)
        if ((value or "") == wanted) is (sign == "!="):
            return False
    return True


def matches_labels(item: Mapping[str, Any], selector: str | None) -> bool:
    """Label selectors: `a=b,c!=d,e in (f,g),h,!i`."""
    labels = item["metadata"].get("labels") or {}
    return all(_matches(labels, term.strip()) for term in re.split(r",(?![^(]*\))", selector or "") if term.strip())


def _matches(labels: Mapping[str, str], term: str) -> bool:
    if found := _IN.match(term):
        values = [value.strip() for value in found[3].split(",")]
        return (labels.get(found[1]) in values) is (found[2] == "in")
    if "=" not in term:
        return (term.lstrip("!") in labels) is not term.startswith("!")
    key, sign, wanted = (part.strip() for part in re.split(r"(!=|==|=)", term, maxsplit=1))
    return (labels.get(key) == wanted) is (sign != "!=")


def merge_patch(current: Any, patch: Any) -> Any:
    """JSON merge patch, RFC 7386."""
    if not isinstance(patch, Mapping):
        return copy_json(patch)
    merged = dict(current) if isinstance(current, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return copy_json(merged)


def json_patch(current: Any, operations: list[dict[str, Any]]) -> Any:
    """JSON patch, RFC 6902, as far as it is used: test, add and remove, within objects; None if it does not apply."""
    patched = copy_json(current)
    for operation in operations:
        *above, last = [p.replace("~1", "/").replace("~0", "~") for p in operation["path"].split("/")[1:]]
        place = patched
        for key in above:
            place = place.get(key) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            return None
        match operation["op"]:
            case "test" if place.get(last) != operation["value"]:
                return None
            case "add":
                place[last] = copy_json(operation["value"])
            case "remove":
                del place[last]
    return patched


def strategic_patch(schema: Schema, current: Any, patch: Any) -> Any:
    """Strategic merge patch as far as it is used: lists with a merge key by that, all others whole, $patch: delete."""
    if isinstance(patch, Mapping):
        merged = dict(current) if isinstance(current, Mapping) else {}
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = strategic_patch(child(schema, key), merged.get(key), value)
        return copy_json(merged)
    keys = schema.get("x-kubernetes-list-map-keys")
    if isinstance(patch, list) and keys:
        return _merge_items(schema, [dict(item) for item in current or ()], patch, keys)
    return copy_json(patch)


def _merge_items(schema: Schema, items: list[Any], patch: list[Any], keys: list[str]) -> list[Any]:
    for change in patch:
        same = [item for item in items if all(item.get(key) == change.get(key) for key in keys)]
        if change.get("$patch") == "delete":
            items = [item for item in items if item not in same]
        elif same:
            # Of duplicates that a replace left behind, the first is the one that is merged into.
            index = items.index(same[0])
            items[index] = strategic_patch(schema.get("items") or {}, same[0], change)
        else:
            items.append(copy_json(change))
    return items
