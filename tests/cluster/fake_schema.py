"""What FakeCluster knows of the kinds: those of the project by their CRDs, built-in ones as far as lists are merged.

Defaults are filled in, unknown fields of the project's kinds pruned, types, enums, bounds and times refused as the API
server does. Rules in CEL are not evaluated.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from provisioner.api.crd import all_crds
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import parse_time

Schema = dict[str, Any]

METADATA: Schema = {
    "properties": {
        "finalizers": {"type": "array", "x-kubernetes-list-type": "set"},
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
        },
    }
}


def _list_by(*keys: str) -> Schema:
    return {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


_BUILT_IN: dict[str, Schema] = {
    "Node": {"properties": {"status": {"properties": {"conditions": _list_by("type"), "addresses": _list_by("type")}}}},
    "Pod": {
        "properties": {
            "status": {"properties": {"conditions": _list_by("type")}},
            "spec": {"properties": {"containers": _list_by("name")}},
        }
    },
    "PodDisruptionBudget": {"properties": {"status": {"properties": {"conditions": _list_by("type")}}}},
}


@cache
def crd_versions() -> dict[str, Schema]:
    """The one version of each of the project's CRDs, by kind."""
    return {crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0] for crd in all_crds()}


@cache
def schema_of(kind: str) -> Schema:
    versions = crd_versions()
    known = versions[kind]["schema"]["openAPIV3Schema"] if kind in versions else _BUILT_IN.get(kind, {})
    return {**known, "properties": {**known.get("properties", {}), "metadata": METADATA}}


def is_own_kind(kind: str) -> bool:
    """Whether it is one of the project's kinds."""
    return kind in crd_versions()


def child(schema: Schema, key: str) -> Schema:
    """Schema of a field; empty where nothing is known of it."""
    found = (schema.get("properties") or {}).get(key)
    if found is not None:
        return dict(found)
    additional = schema.get("additionalProperties")
    return additional if isinstance(additional, dict) else {}


def admit(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """`body` with defaults, without what the schema does not know. Raises: Refused as the API server's HTTP 422."""
    if not is_own_kind(kind):
        return body
    schema = schema_of(kind)
    admitted = {key: body[key] for key in ("apiVersion", "kind", "metadata") if key in body}
    for key in ("spec", "status"):
        if key in body and body[key] is None:
            _refuse(kind, key, 'Invalid value: "null": in body must be of type object')
        if key in body:
            admitted[key] = _admit(child(schema, key), body[key], key, kind)
    if "spec" not in admitted:
        raise Refused(f'{kind} "{body["metadata"]["name"]}" is invalid: spec: Required value', hint="set spec")
    return admitted


def _admit(schema: Schema, value: Any, path: str, kind: str) -> Any:
    type_ = schema.get("type")
    if value is None:
        return None
    expected = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}.get(type_ or "")
    if expected is not None and (not isinstance(value, expected) or (expected is int and isinstance(value, bool))):
        _refuse(kind, path, f"must be of type {type_}: {value!r}")
    if isinstance(value, dict):
        return _admit_object(schema, value, path, kind)
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            _refuse(kind, path, f"Too many: {len(value)}: must have at most {schema['maxItems']} items")
        return [_admit(schema.get("items") or {}, item, f"{path}[{i}]", kind) for i, item in enumerate(value)]
    if isinstance(value, str):
        _check_text(schema, value, path, kind)
    elif type_ == "integer" and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        _refuse(kind, path, f"Invalid value: {value}")
    return value


def _admit_object(schema: Schema, value: dict[str, Any], path: str, kind: str) -> dict[str, Any]:
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return value
    known, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    admitted = {}
    for key, item in value.items():
        if key in known or additional is not None:
            result = _admit(child(schema, key), item, f"{path}.{key}", kind)
            if result is not None:
                admitted[key] = result
    for key, field in known.items():
        if key not in admitted and "default" in field:
            admitted[key] = field["default"]
    for key in schema.get("required", ()):
        if key not in admitted:
            _refuse(kind, f"{path}.{key}", "Required value")
    return admitted


def _check_text(schema: Schema, value: str, path: str, kind: str) -> None:
    if "enum" in schema and value not in schema["enum"]:
        _refuse(kind, path, f"Unsupported value: {value!r}")
    if len(value) > schema.get("maxLength", len(value)):
        _refuse(kind, path, f"Too long: may not be more than {schema['maxLength']} bytes")
    if schema.get("format") == "date-time":
        try:
            parse_time(value)
        except ValueError:
            _refuse(kind, path, f"must be of type date-time: {value!r}")


def _refuse(kind: str, path: str, words: str) -> None:
    raise Refused(f"{kind} is invalid: {path}: {words}", hint="correct what the API server names")
