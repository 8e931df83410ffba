"""How the typed source of a kind carries its schema: each dataclass field says what `kubectl explain` and the API
server must know of it. `provisioner.api.crd` turns these into CustomResourceDefinitions, and
`provisioner.api.machinery.codec` into and out of JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

GROUP: Final = "provisioner.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

NAME_PATTERN: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"
IPV4_PATTERN: Final = r"^((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)$"


@dataclass(frozen=True)
class CelRule:
    """One CEL rule and the words a person reads when it fails.

    `expression` is a CEL expression for words that name the value; `message` stands in if it fails. `field` is the path
    below the rule's place that the refusal names, such as `.spec.rackRef`.
    """

    rule: str
    message: str
    expression: str | None = None
    field: str | None = None


@dataclass(frozen=True)
class Column:
    """A printer column of `kubectl get`; `priority` 1 shows only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True)
class Kind:
    """What the API server must know of a kind beside its schema."""

    kind: str
    short: str
    description: str
    columns: tuple[Column, ...] = ()
    rules: tuple[CelRule, ...] = ()
    selectable: tuple[str, ...] = ()
    """Paths that `kubectl get --field-selector` may use, such as `.spec.rackRef`."""
    namespaced: bool = False
    """What tenants make lies in their namespaces, where the cluster's own roles and quotas hold."""

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def plural(self) -> str:
        return f"{self.singular}s"

    @property
    def path(self) -> str:
        """Path of the collection below the API server's root."""
        return f"/apis/{API_VERSION}/{self.plural}"


@dataclass(frozen=True)
class FieldSchema:
    """Constraints of one field; everything that its Python type does not already say."""

    doc: str
    pattern: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    max_properties: int | None = None
    list_map_keys: tuple[str, ...] = ()
    list_set: bool = False
    format: str | None = None
    preserve_unknown: bool = False
    server_default: Any = None
    rules: tuple[CelRule, ...] = ()
    item: FieldSchema | None = None
    """Constraints of each element of a list, or of each value of a map."""
    known: tuple[tuple[str, str], ...] = ()
    """Name and type of fields of a preserve_unknown object that rules speak of: CEL sees no others."""


def described(
    doc: str,
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    rules: Sequence[CelRule] = (),
    **constraints: Any,
) -> Any:
    """A dataclass field with its `kubectl explain` text and constraints; required unless it has a default, which is
    that of the API server where it sets one (`server_default`)."""
    schema = FieldSchema(doc=doc, rules=tuple(rules), **constraints)
    metadata = {"schema": schema}
    if default is dataclasses.MISSING and schema.server_default is not None:
        default = schema.server_default
    if default is not dataclasses.MISSING:
        return dataclasses.field(default=default, metadata=metadata)
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, metadata=metadata)
    return dataclasses.field(metadata=metadata)


def optional(doc: str, **constraints: Any) -> Any:
    """A field that may be absent: it is None then."""
    return described(doc, default=None, **constraints)


def listed(doc: str, **constraints: Any) -> Any:
    """A list that may be absent: it is empty then."""
    return described(doc, default=(), **constraints)


_ACRONYMS: Final = frozenset(
    (
        "mac",
        "uid",
        "uuid",
        "sha256",
        "bmc",
        "url",
        "dns",
        "tpm",
        "ntp",
        "cidr",
        "id",
        "ip",
        "mtu",
        "vpc",
        "cpu",
        "gpu",
        "nic",
        "http",
    )
)


def json_name(python_name: str) -> str:
    """`boot_mac_address` → `bootMACAddress`; Kubernetes' spelling of acronyms (upper case unless they come first)."""
    first, *rest = python_name.split("_")
    return first + "".join(word.upper() if word in _ACRONYMS else word.capitalize() for word in rest)
