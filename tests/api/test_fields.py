"""No field of a kind promises what is not there: a spec's is acted on, a status's is written."""

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
from provisioner.api.machinery.meta import Condition, ObjectMeta
from provisioner.api.machinery.schema import json_name

PACKAGE = Path(provisioner.__file__).parent


@cache
def classes(part: str) -> dict[str, type]:
    """The dataclasses of which `part` (spec, status) of all kinds is made, by name."""
    found: dict[str, type] = {}

    def add(hint: object) -> None:
        for option in typing.get_args(hint):
            add(option)
        foreign = not isinstance(hint, type) or not dataclasses.is_dataclass(hint) or hint in (Condition, ObjectMeta)
        if isinstance(hint, type) and not foreign and hint.__name__ not in found:
            found[hint.__name__] = hint
            for each in typing.get_type_hints(hint).values():
                add(each)

    for kind in KINDS:
        add(typing.get_type_hints(kind).get(part))
    return found


@cache
def trees() -> dict[str, ast.Module]:
    paths = [path for path in PACKAGE.rglob("*.py") if "api" not in path.relative_to(PACKAGE).parts]
    return {str(path): ast.parse(path.read_text()) for path in [*paths, *(PACKAGE / "api").rglob("*.py")]}


@cache
def writes() -> set[str]:
    """`Class.field` where a class is made with it; `field` where an instance is changed, or JSON made with it."""
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
    """Names of attributes that are read; outside of the definitions also keys, paths and other words of constants."""
    found = set()
    for path, tree in trees().items():
        defines = Path(path).is_relative_to(PACKAGE / "api")
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(attr=name, ctx=ast.Load()):
                    found.add(name)
                case ast.Constant(value=str(text)) if not defines and " " not in text:
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
    missing = [full for full, name, key in fields("spec") if not {name, key} & reads()]
    assert missing == [], "nothing acts on these"
