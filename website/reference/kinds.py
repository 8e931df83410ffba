"""Pages of the API's kinds, generated from their CustomResourceDefinitions: what `kubectl explain` says, at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from website.reference.markdown import code, heading, table, words

Schema = Mapping[str, Any]

LIMITS: Final = (
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("minLength", "{} characters or more"),
    ("maxLength", "up to {} characters"),
    ("minItems", "{} entries or more"),
    ("maxItems", "up to {} entries"),
    ("maxProperties", "up to {} entries"),
)
"""What a schema limits, and how that is said."""


@dataclass(frozen=True)
class Section:
    """One object of a kind: where it lies, such as `spec.bmc`, and its schema."""

    path: str
    schema: Schema


def kinds_index(crds: list[dict[str, Any]]) -> str:
    """The page that lists all kinds, with links to their pages."""
    rows = [
        (
            f"[{crd['spec']['names']['kind']}]({page_name(crd)})",
            code(crd["spec"]["names"].get("shortNames", [crd["spec"]["names"]["singular"]])[0]),
            scope(crd),
            words(root_schema(crd)["description"]),
        )
        for crd in crds
    ]
    introduction = (
        "Every kind is of the group `provisioner.dev`. The same words are on a cluster: `kubectl explain server.spec`."
    )
    return "\n\n".join(
        (heading(1, "The API's kinds"), introduction, table(("kind", "short name", "scope", "what it is"), rows), "")
    )


def kind_page(crd: Mapping[str, Any]) -> str:
    """The page of one kind: its columns, then each object in it with its fields and rules."""
    names, schema = crd["spec"]["names"], root_schema(crd)
    version = _stored(crd)
    parts = [
        heading(1, names["kind"]),
        words(schema["description"]),
        f"`{crd['spec']['group']}/{version['name']}`, {scope(crd)}; `kubectl get {names['plural']}`.",
    ]
    columns = [
        (column["name"], code(column["jsonPath"]), "with `-o wide`" if column.get("priority") else "")
        for column in version.get("additionalPrinterColumns", ())
    ]
    if columns:
        parts += [heading(2, "What kubectl get shows"), table(("column", "from", ""), columns)]
    selectable = [code(each["jsonPath"]) for each in version.get("selectableFields", ())]
    if selectable:
        parts.append(f"`--field-selector` takes {', '.join(selectable)}.")
    parts += _rules(schema)
    for section in sections(schema):
        parts += [heading(2, section.path), words(section.schema.get("description", ""))]
        parts += [_fields(section), *_rules(section.schema)]
    return "\n\n".join(part for part in parts if part) + "\n"


def page_name(crd: Mapping[str, Any]) -> str:
    """File name of the kind's page."""
    return f"{crd['spec']['names']['singular']}.md"


def root_schema(crd: Mapping[str, Any]) -> Schema:
    """Schema of the version that is stored."""
    schema: Schema = _stored(crd)["schema"]["openAPIV3Schema"]
    return schema


def scope(crd: Mapping[str, Any]) -> str:
    """In whose hands objects of the kind lie, in words."""
    return "in a namespace" if crd["spec"]["scope"] == "Namespaced" else "of the whole cluster"


def sections(schema: Schema) -> Iterator[Section]:
    """`spec` and `status` and all objects in them, in the order in which they are declared, outer ones first."""
    for name in ("spec", "status"):
        yield from _sections(name, schema["properties"][name])


def _sections(path: str, schema: Schema) -> Iterator[Section]:
    yield Section(path, schema)
    for name, field in schema.get("properties", {}).items():
        inner, suffix = _inner(field)
        if inner.get("properties"):
            yield from _sections(f"{path}.{name}{suffix}", inner)


def _inner(field: Schema) -> tuple[Schema, str]:
    """What a list's entries or a map's values are, with how their path is written."""
    if field.get("type") == "array":
        return field["items"], "[]"
    if isinstance(field.get("additionalProperties"), Mapping):
        return field["additionalProperties"], "{}"
    return field, ""


def _stored(crd: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(each for each in crd["spec"]["versions"] if each["storage"])


def _fields(section: Section) -> str:
    required = set(section.schema.get("required", ()))
    rows = [
        (code(name), _type(field), "required" if name in required else _default(field), _says(field))
        for name, field in section.schema.get("properties", {}).items()
    ]
    return table(("field", "type", "", "what it says"), rows) if rows else ""


def _type(field: Schema) -> str:
    inner, suffix = _inner(field)
    if suffix:
        return f"{'list' if suffix == '[]' else 'map'} of {_type(inner)}"
    if "enum" in inner:
        return " or ".join(code(str(value)) for value in inner["enum"])
    if inner.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = str(inner.get("type", "any"))
    return str(inner.get("format")) if inner.get("format") == "date-time" else kind


def _default(field: Schema) -> str:
    return f"default {code(str(field['default']))}" if "default" in field else ""


def _says(field: Schema) -> str:
    inner, suffix = _inner(field)
    said = [words(str(field.get("description", "")))]
    limits = [text.format(field[name]) for name, text in LIMITS if name in field]
    if suffix:
        limits += [f"each {text.format(inner[name])}" for name, text in LIMITS if name in inner]
    pattern = field.get("pattern") or (inner.get("pattern") if suffix else None)
    if pattern:
        limits.append(f"pattern {code(str(pattern))}")
    if limits:
        said.append(f"({'; '.join(limits)})")
    said += [f"*Refused:* {words(rule['message'])}." for rule in _validations(field)]
    if suffix:
        said += [f"*Refused:* {words(rule['message'])}." for rule in _validations(inner) if not inner.get("properties")]
    return " ".join(each for each in said if each)


def _validations(schema: Schema) -> list[Mapping[str, str]]:
    return list(schema.get("x-kubernetes-validations", ()))


def _rules(schema: Schema) -> list[str]:
    said = [f"- {words(rule['message'])}" for rule in _validations(schema)]
    return ["Refused by the API server:\n\n" + "\n".join(said)] if said else []
