"""CustomResourceDefinitions of the kinds, generated from their dataclasses.

What a Python type says (object, list, enum of a Literal, required or not) is taken from it; the rest from the
`described(...)` of each field. The schemas are structural, so the API server prunes what it does not know.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from provisioner import __version__
from provisioner.api import KINDS
from provisioner.api.machinery.meta import Resource
from provisioner.api.machinery.schema import GROUP, VERSION, CelRule, Column, FieldSchema, Kind, json_name

CATEGORY: Final = "provisioner"
"""`kubectl get provisioner` lists every kind of the project."""

VERSION_ANNOTATION: Final = f"{GROUP}/version"
"""Of a CustomResourceDefinition: the provisioner whose kinds it describes. The chart refuses to go ahead of it."""


@dataclass(frozen=True)
class ApiVersion:
    """A version of the API under which the kinds can be read and written. docs/api-versions.md tells its life.

    All versions have one schema, and the API server changes nothing but `apiVersion` between them (`conversion: None`):
    no webhook, which every boot and every join would depend on. `deprecation`: what `kubectl` shows to who uses it.
    """

    name: str
    served: bool = True
    storage: bool = True
    deprecation: str | None = None


VERSIONS: Final = (ApiVersion(VERSION),)
"""Newest first. Exactly one is what etcd holds (`storage`)."""

_SCALARS: Final[dict[type, dict[str, Any]]] = {
    str: {"type": "string"},
    int: {"type": "integer", "format": "int64"},
    bool: {"type": "boolean"},
}

_CONSTRAINTS: Final = (
    *("pattern", "minimum", "maximum", "min_length", "max_length", "min_items", "max_items", "max_properties"),
    "format",
)
"""Fields of a FieldSchema that an OpenAPI schema has as well."""


def all_crds() -> list[dict[str, Any]]:
    """One CustomResourceDefinition (apiextensions.k8s.io/v1) for each kind, in the order of KINDS."""
    crds = [crd_of(kind) for kind in KINDS]
    for crd in crds:
        crd["metadata"]["annotations"] = {VERSION_ANNOTATION: __version__}
    return crds


def crds_yaml() -> str:
    """The same as one multi-document YAML text, for `kubectl apply -f -`."""
    return yaml.safe_dump_all(all_crds(), sort_keys=False, width=120, allow_unicode=True, explicit_start=True)


def crd_of(resource: type[Resource], versions: Sequence[ApiVersion] = VERSIONS) -> dict[str, Any]:
    """The CustomResourceDefinition of one kind. Raises: ValueError unless exactly one version is stored."""
    kind = resource.KIND
    if sum(version.storage for version in versions) != 1:
        raise ValueError(f"{kind.kind}: one version is stored, not {[each.name for each in versions if each.storage]}")
    names: dict[str, Any] = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural}
    names["singular"] = kind.singular
    if kind.short != kind.singular:
        names["shortNames"] = [kind.short]
    names["categories"] = [CATEGORY]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(resource, kind, version) for version in versions],
        },
    }


def _version(resource: type[Resource], kind: Kind, version: ApiVersion) -> dict[str, Any]:
    found: dict[str, Any] = {"name": version.name, "served": version.served, "storage": version.storage}
    if version.deprecation is not None:
        found |= {"deprecated": True, "deprecationWarning": version.deprecation}
    found |= {
        "schema": {"openAPIV3Schema": _root_schema(resource, kind)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_printer_column(column) for column in kind.columns],
    }
    if kind.selectable:
        found["selectableFields"] = [{"jsonPath": path} for path in kind.selectable]
    return found


def _root_schema(resource: type[Resource], kind: Kind) -> dict[str, Any]:
    hints = typing.get_type_hints(resource)
    schema: dict[str, Any] = {
        "description": kind.description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _object_schema(hints["spec"]),
            "status": _object_schema(hints["status"]),
        },
    }
    if kind.rules:
        schema["x-kubernetes-validations"] = [_validation(rule) for rule in kind.rules]
    return schema


def _object_schema(cls: type) -> dict[str, Any]:
    """Schema of a dataclass; its docstring is its description unless the field that holds it says another."""
    hints = typing.get_type_hints(cls)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for field in dataclasses.fields(cls):
        name = json_name(field.name)
        properties[name] = _field_schema(hints[field.name], field.metadata.get("schema"))
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(name)
    schema: dict[str, Any] = {"description": " ".join((cls.__doc__ or "").split()), "type": "object"}
    if required:
        schema["required"] = required
    schema["properties"] = properties
    rules: tuple[CelRule, ...] = getattr(cls, "RULES", ())
    if rules:
        schema["x-kubernetes-validations"] = [_validation(rule) for rule in rules]
    return schema


def _field_schema(hint: Any, constraints: FieldSchema | None) -> dict[str, Any]:
    schema = _type_schema(hint, constraints.item if constraints else None)
    if constraints is None:
        return schema
    if constraints.doc:
        words = constraints.doc + _default_words(constraints.server_default)
        schema = {"description": words, **{k: v for k, v in schema.items() if k != "description"}}
    given = {json_name(name): getattr(constraints, name) for name in _CONSTRAINTS}
    given["default"] = constraints.server_default
    schema |= {name: value for name, value in given.items() if value is not None}
    if constraints.list_map_keys:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(constraints.list_map_keys)}
    if constraints.list_set:
        schema["x-kubernetes-list-type"] = "set"
    if constraints.preserve_unknown:
        schema.pop("additionalProperties", None)
        schema["x-kubernetes-preserve-unknown-fields"] = True
        if constraints.known:
            schema["properties"] = {name: _known_property(type_) for name, type_ in constraints.known}
    if constraints.rules:
        own = schema.get("x-kubernetes-validations", [])
        schema["x-kubernetes-validations"] = own + [_validation(rule) for rule in constraints.rules]
    return schema


def _default_words(default: Any) -> str:
    """`kubectl explain` shows no default: the description says it."""
    if isinstance(default, bool) or not isinstance(default, int | str) or default == "":
        return ""
    return f" Default: {default}."


def _known_property(type_: str) -> dict[str, Any]:
    known: dict[str, Any] = {"description": "Known to the rules above.", "type": type_}
    if type_ == "array":
        return known | {"maxItems": 64, "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    if type_ == "string":
        return known | {"maxLength": 1024}
    return known | {"x-kubernetes-preserve-unknown-fields": True} if type_ == "object" else known


def _type_schema(hint: Any, item: FieldSchema | None) -> dict[str, Any]:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(hint) if option is not type(None)]
        if set(options) == {int, str}:
            return {"x-kubernetes-int-or-string": True}
        (hint,) = options
        origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return {"type": "string", "enum": list(typing.get_args(hint))}
    if origin is tuple:
        return {"type": "array", "items": _field_schema(typing.get_args(hint)[0], item)}
    if origin is dict:
        value = typing.get_args(hint)[1]
        if value is Any:
            return {"type": "object"}
        return {"type": "object", "additionalProperties": _field_schema(value, item)}
    if dataclasses.is_dataclass(hint):
        return _object_schema(typing.cast(type, hint))
    return dict(_SCALARS[hint])


def _validation(rule: CelRule) -> dict[str, Any]:
    validation = {"rule": rule.rule, "message": rule.message}
    if rule.expression is not None:
        validation["messageExpression"] = rule.expression
    if rule.field is not None:
        validation["fieldPath"] = rule.field
    return validation


def _printer_column(column: Column) -> dict[str, Any]:
    printed: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.priority:
        printed["priority"] = column.priority
    return printed
