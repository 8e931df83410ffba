"""Packing lists in YAML: whole objects as for `kubectl apply`, or the compact form

    rack: {name: r01, subnets: [{name: boot, cidr: 10.80.0.0/24}]}
    defaults: {nodePoolRef: gpu}
    servers:
    - {name: r01-u01, bootMACAddress: "52:54:00:12:34:56"}

Scalars are read by the type of their field, from their text: YAML 1.1 takes an unquoted 52:54:00:12:34:56 for a number
to the base 60, and a serial number of digits for an integer.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import yaml

from provisioner.api import Rack, Server
from provisioner.api.machinery.documents import Unreadable, compose_yaml
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.schema import API_VERSION, json_name
from provisioner.api.machinery.values import is_placeholder_serial, is_placeholder_uuid
from provisioner.api.machinery.wording import clip
from provisioner.api.servers.rack import RackSpec
from provisioner.api.servers.server import BMC, ServerSpec
from provisioner.inventory.lists.bmc_address import EXPECTED, protocol_of, read_bmc_address, scheme_for
from provisioner.inventory.lists.cells import (
    AS_WRITTEN,
    clean,
    placeholder_note,
    read_mac,
    read_position,
    read_uuid,
    refuse_spreadsheets,
)
from provisioner.inventory.lists.entries import ListEntry, Mistake, Origin, PackingList

SPECS: Final[dict[str, type]] = {Rack.KIND.kind: RackSpec, Server.KIND.kind: ServerSpec}
_WHOLE_OBJECT: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_COMPACT: Final = ("rack", "defaults", "servers")
_SHOWN: Final = 80
_NULLS: Final = ("", "~", "null", "Null", "NULL")


@dataclass
class _Reader:
    file: str
    mistakes: list[Mistake] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    bmc_defaults: dict[str, Any] = field(default_factory=dict)
    """What the document says of every BMC."""

    def origin(self, node: yaml.Node) -> Origin:
        return Origin(self.file, node.start_mark.line + 1)

    def wrong(self, node: yaml.Node, observed: str, expected: str, remedy: str) -> None:
        self.mistakes.append(Mistake(self.origin(node), observed, expected, remedy))

    def fields(self, node: yaml.Node, known: tuple[str, ...], what: str) -> Iterator[tuple[str, yaml.Node]]:
        """The fields of a mapping; unknown and repeated ones are mistakes."""
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, f"{what} is {_shown(node)}", "a mapping", f"write {what} as fields with values")
            return
        seen: set[str] = set()
        for key_node, value in node.value:
            key = _key(key_node)
            if key in seen:
                self.wrong(key_node, f"{key} occurs twice in {what}", "each field once", "remove one of them")
            elif key not in known:
                spelt = {name.lower(): name for name in known}
                close = [spelt[name] for name in difflib.get_close_matches(key.lower(), spelt, n=1)]
                remedy = f"write {close[0]}" if close else f"use one of {', '.join(known)}"
                self.wrong(key_node, f"{what} has a field {key}", "a field of the API", remedy)
            else:
                yield key, value
            seen.add(key)

    def read(self, node: yaml.Node, hint: Any, path: str) -> Any:
        """The value of a node by the type of its field; None where it is unset or a mistake."""
        origin = typing.get_origin(hint)
        if origin in (typing.Union, types.UnionType):
            hint = next(option for option in typing.get_args(hint) if option is not type(None))
            origin = typing.get_origin(hint)
        if _is_null(node):
            return None
        if dataclasses.is_dataclass(hint):
            return self.read_dataclass(node, typing.cast(type, hint), path)
        if origin is tuple:
            return self._read_list(node, typing.get_args(hint)[0], path)
        if origin is dict:
            if not isinstance(node, yaml.MappingNode):
                return self.wrong(node, f"{path} is {_shown(node)}", "a mapping", "write it as keys with values")
            read = {_key(key): self._read_scalar(value, dict, f"{path}.{_key(key)}") for key, value in node.value}
            return {key: value for key, value in read.items() if value is not None}
        return self._read_scalar(node, hint, path)

    def read_dataclass(self, node: yaml.Node, cls: type, path: str) -> dict[str, Any]:
        by_name = _fields_of(cls)
        values = {}
        nodes = {}
        for key, value_node in self.fields(node, tuple(by_name), path):
            nodes[key] = value_node
            value = self.read(value_node, by_name[key], f"{path}.{key}")
            if value is not None:
                values[key] = value
        if cls is BMC and "address" in values:
            values |= self._bmc(nodes["address"], values, path)
        return values

    def _bmc(self, node: yaml.Node, own: dict[str, Any], path: str) -> dict[str, Any]:
        """What the address of a BMC says of it."""
        said = self.bmc_defaults | own
        by_plain_http = bool(said.get("allowPlainHTTP"))
        try:
            url, system_id = read_bmc_address(
                own["address"], scheme_for(said.get("protocol"), by_plain_http=by_plain_http)
            )
        except Refused as refused:
            self.wrong(node, f"{path}.address {Exception.__str__(refused)}", EXPECTED, refused.hint)
            return {}
        system_id = own.get("systemID") or system_id
        told = {"systemID": system_id, "protocol": None if "protocol" in said else protocol_of(url)}
        return {"address": url} | {key: value for key, value in told.items() if value}

    def _read_list(self, node: yaml.Node, item: Any, path: str) -> list[Any] | None:
        if not isinstance(node, yaml.SequenceNode):
            self.wrong(node, f"{path} is {_shown(node)}", "a list", "write each element after a dash")
            return None
        read = [self.read(element, item, f"{path}[{index}]") for index, element in enumerate(node.value)]
        return [value for value in read if value is not None]

    def _read_scalar(self, node: yaml.Node, hint: Any, path: str) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            return self.wrong(node, f"{path} is {_shown(node)}", "a single value", "write it on one line")
        text = str(node.value)
        if hint is int:
            try:
                return int(text)
            except ValueError:
                return self.wrong(node, f"{path} is {_shown(node)}", "a whole number", "write digits only")
        if hint is bool:
            if text.lower() in ("true", "false"):
                return text.lower() == "true"
            return self.wrong(node, f"{path} is {_shown(node)}", "true or false", "write one of them")
        return text if hint is dict or path.endswith(".certificate") else self._read_text(node, clean(text), path)

    def _read_text(self, node: yaml.Node, text: str, path: str) -> str | None:
        """A text as the cell of a CSV is read."""
        name = path.partition(".")[2]
        try:
            refuse_spreadsheets(name, text)
        except Refused as refused:
            self.wrong(node, f"{path} is {Exception.__str__(refused)}", AS_WRITTEN, refused.hint)
            return None
        if path.endswith(("MACAddress", "macAddress")):
            try:
                return read_mac(text)
            except Refused as refused:
                self.wrong(node, Exception.__str__(refused), "a MAC address", refused.hint)
                return None
        if name == "position":
            return read_position(text)
        if name == "systemUUID":
            text = read_uuid(text)
        if (name == "serialNumber" and is_placeholder_serial(text)) or (
            name == "systemUUID" and is_placeholder_uuid(text)
        ):
            self.notes.append(placeholder_note(f"{self.origin(node)}: {path}", text))
            return None
        return text


@cache
def _fields_of(cls: type) -> dict[str, Any]:
    """Types of a dataclass's fields, by their names in JSON."""
    hints = typing.get_type_hints(cls)
    return {json_name(f.name): hints[f.name] for f in dataclasses.fields(cls)}


def _key(node: yaml.Node) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else f"that is {_shown(node)}"


def _is_null(node: yaml.Node) -> bool:
    """Whether it is unset. The style of a text without quotes is '' by libyaml, else None."""
    return isinstance(node, yaml.ScalarNode) and not node.style and node.value in _NULLS


def _shown(node: yaml.Node) -> str:
    """What a node says, for people; none that may hold a password, as the address of a BMC may."""
    if isinstance(node, yaml.ScalarNode):
        return "'***@…'" if "@" in node.value else repr(clip(str(node.value), _SHOWN))
    return "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"


def read_yaml(text: str, file: str) -> tuple[PackingList, tuple[Mistake, ...]]:
    """The objects in a YAML text, and every mistake in it."""
    reader = _Reader(file)
    entries: list[ListEntry] = []
    try:
        documents = compose_yaml(text)
    except Unreadable as error:
        mistake = Mistake(Origin(file, error.line), Exception.__str__(error), "YAML", "correct the syntax")
        return PackingList(()), (mistake,)
    for document in documents:
        if isinstance(document, yaml.ScalarNode) and document.value in _NULLS:
            continue
        if "kind" in _keys(document):
            entries += _whole_object(reader, document)
        else:
            entries += _compact(reader, document)
    return PackingList(tuple(entries), tuple(reader.notes)), tuple(reader.mistakes)


def _keys(node: yaml.Node) -> dict[str, yaml.Node]:
    return {_key(key): value for key, value in node.value} if isinstance(node, yaml.MappingNode) else {}


def _whole_object(reader: _Reader, node: yaml.Node) -> Iterator[ListEntry]:
    values = _keys(node)
    if not isinstance(values.get("kind"), yaml.ScalarNode):
        return reader.wrong(node, f"{_shown(node)} without a kind", "an object with its kind", "give it a kind")
    kind = str(values["kind"].value)
    if kind == "List" and isinstance(values.get("items"), yaml.SequenceNode):
        for item in values["items"].value:
            yield from _whole_object(reader, item)
        return
    if kind not in SPECS:
        return reader.wrong(
            values["kind"], f"kind {kind}", f"one of {', '.join(SPECS)}", "apply other kinds with kubectl apply"
        )
    fields = dict(reader.fields(node, _WHOLE_OBJECT, kind))
    version = fields.get("apiVersion")
    if version is None or version.value != API_VERSION:
        said = _shown(version) if version is not None else "missing"
        reader.wrong(version or node, f"apiVersion {said}", API_VERSION, "correct it")
    metadata: dict[str, Any] = {}
    if "metadata" in fields:
        known = ("name", "labels", "annotations")
        for key, value in reader.fields(fields["metadata"], known, "metadata"):
            metadata[key] = reader.read(value, str if key == "name" else dict[str, str], f"metadata.{key}")
    if not metadata.get("name"):
        return reader.wrong(node, f"{kind} without a name", "metadata.name", "give it a name such as r01-u01")
    if "spec" not in fields:
        return reader.wrong(node, f"{kind} {metadata['name']} without spec", "spec", "say what it is")
    yield ListEntry(
        kind=kind,
        name=metadata["name"],
        spec=reader.read_dataclass(fields["spec"], SPECS[kind], "spec"),
        origin=reader.origin(node),
        labels=metadata.get("labels") or {},
        annotations=metadata.get("annotations") or {},
    )


def _compact(reader: _Reader, node: yaml.Node) -> Iterator[ListEntry]:
    fields = dict(reader.fields(node, _COMPACT, "the document"))
    rack: str | None = None
    if "rack" in fields and isinstance(fields["rack"], yaml.ScalarNode):
        rack = reader.read(fields["rack"], str, "rack.name")  # `rack: r01` names one that exists already
    elif "rack" in fields:
        for entry in _named(reader, fields["rack"], Rack.KIND.kind, "rack"):
            rack = entry.name
            yield entry
    reader.bmc_defaults = {}
    defaults: dict[str, Any] = {}
    if "defaults" in fields:
        defaults = reader.read_dataclass(fields["defaults"], ServerSpec, "defaults")
        reader.bmc_defaults = defaults.get("bmc") or {}
    servers = fields.get("servers")
    if servers is not None and not isinstance(servers, yaml.SequenceNode):
        return reader.wrong(servers, f"servers is {_shown(servers)}", "a list", "write each server after a dash")
    for server in servers.value if servers is not None else ():
        for entry in _named(reader, server, Server.KIND.kind, "server"):
            placed = {"rackRef": rack} if rack else {}
            spec = placed | _merge(defaults, entry.spec)
            yield dataclasses.replace(entry, spec=spec)
    reader.bmc_defaults = {}


def _named(reader: _Reader, node: yaml.Node, kind: str, what: str) -> Iterator[ListEntry]:
    """An object whose name stands among the fields of its spec."""
    if not isinstance(node, yaml.MappingNode):
        return reader.wrong(node, f"{what} is {_shown(node)}", "a mapping", "write its fields with values")
    names = [value for key, value in node.value if key.value == "name"]
    if not names or not isinstance(names[0], yaml.ScalarNode) or not names[0].value or _is_null(names[0]):
        return reader.wrong(node, f"a {what} without a name", "name", "give it a name such as r01-u01")
    rest = [(key, value) for key, value in node.value if key.value != "name"]
    spec_node = yaml.MappingNode(node.tag, rest, node.start_mark, node.end_mark)
    spec = reader.read_dataclass(spec_node, SPECS[kind], what)
    if name := reader.read(names[0], str, f"{what}.name"):
        yield ListEntry(kind=kind, name=name, spec=spec, origin=reader.origin(node))


def _merge(defaults: dict[str, Any], own: typing.Mapping[str, Any]) -> dict[str, Any]:
    """`own` over `defaults`, mappings such as bmc field by field."""
    merged = dict(defaults)
    for key, value in own.items():
        before = merged.get(key)
        merged[key] = before | value if isinstance(before, dict) and isinstance(value, dict) else value
    return merged
