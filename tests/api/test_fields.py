"""No field of a kind promises what is not there: somebody acts on what a person may write, and somebody writes a status."""

from __future__ import annotations

import ast
import dataclasses
import re
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import provisioner
from provisioner.api import KINDS
from provisioner.api.meta import Condition, ObjectMeta
from provisioner.api.schema import json_name

PACKAGE = Path(provisioner.__file__).parent
TOLD_TO_PEOPLE = {
    "RackSpec.site": "where the rack stands; shown by kubectl get racks",
    "ServerSpec.endorsement_key_sha256": "packing lists bring it, and a proof by TPM will be compared with it",
    "DPUSpec.oob_mac_address": "found to be somebody else's at registration; nothing boots a DPU yet",
    "DPUSpec.mode": "a card in NIC mode is refused by the API server; nothing boots a DPU yet",
}
"""Fields of specs on which no code acts, and what they are for."""


@cache
def classes(part: str) -> dict[str, type]:
    """The dataclasses of which `part` (spec, status) of all kinds is made, by name."""
    found: dict[str, type] = {}

    def add(hint: object) -> None:
        for option in typing.get_args(hint):
            add(option)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint) and hint not in (Condition, ObjectMeta):
            if hint.__name__ not in found:
                found[hint.__name__] = hint
                for each in typing.get_type_hints(hint).values():
                    add(each)

    for kind in KINDS:
        add(typing.get_type_hints(kind).get(part))
    return found


@cache
def trees() -> dict[str, ast.Module]:
    paths = [path for path in PACKAGE.rglob("*.py") if "api" not in path.relative_to(PACKAGE).parts]
    return {str(path): ast.parse(path.read_text()) for path in [*paths, *(PACKAGE / "api").glob("*.py")]}


@cache
def writes() -> set[str]:
    """`Class.field` where a class is made with it; `field` where an instance is changed, or a JSON object made with it."""
    found = set()
    for tree in trees().values():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id=made) | ast.Attribute(attr=made), keywords=keywords):
                    found |= {each.arg if made == "replace" else f"{made}.{each.arg}" for each in keywords if each.arg}
                case ast.Dict(keys=keys):
                    found |= {str(key.value) for key in keys if isinstance(key, ast.Constant)}
                case ast.Subscript(slice=ast.Constant(value=str(key)), ctx=ast.Store()):
                    found.add(key)
    return found


@cache
def reads() -> set[str]:
    """Names of attributes that are read, and words of string constants, outside of the definitions."""
    found = set()
    for path, tree in trees().items():
        defines = Path(path).parent.name == "api"
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    found.add(name)
                case ast.Constant(value=str(text)) if not defines:
                    found |= set(re.findall(r"\w+", text))
    return found


def fields(part: str) -> Iterator[tuple[str, str, str]]:
    for name, cls in classes(part).items():
        for field in dataclasses.fields(cls):
            yield f"{name}.{field.name}", field.name, json_name(field.name)


def test_every_field_of_a_status_is_written() -> None:
    # A list of values is made by `to_json` of its class, or as JSON: both are looked for.
    missing = [full for full, name, key in fields("status") if not {full, name, key} & writes()]
    assert missing == []


def test_every_field_of_a_spec_is_read() -> None:
    missing = {full for full, name, key in fields("spec") if not {name, key} & reads()}
    assert missing <= set(TOLD_TO_PEOPLE), "nothing acts on these"


def test_no_exception_is_made_for_a_field_that_is_not_there() -> None:
    assert set(TOLD_TO_PEOPLE) <= {full for full, _, _ in fields("spec")}
