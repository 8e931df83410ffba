"""Between the typed kinds and JSON: nothing is lost, nothing unexpected escapes."""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from provisioner.api import KINDS, Rack, Resource, Server
from provisioner.api.machinery.codec import SHARED, decode, decode_shared, encode, from_json
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.schema import json_name
from tests.api.objects import bmc, rack, server

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value that the type of a field allows."""
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        values = st.one_of(*(values_of(option) for option in arguments if option is not type(None)))
        return st.none() | values if type(None) in arguments else values
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        values = JSON if arguments[1] is Any else values_of(arguments[1])
        return st.dictionaries(st.text(max_size=8), values, max_size=2)
    if dataclasses.is_dataclass(hint):
        return instances_of(typing.cast(type, hint))
    return {str: st.text(max_size=8), int: st.integers(), bool: st.booleans()}[hint]


def instances_of(cls: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(cls)
    return st.builds(cls, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(cls)})


ANY_RESOURCE = st.one_of([instances_of(kind) for kind in KINDS])


@given(ANY_RESOURCE)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_what_is_written_is_read_back(resource: Resource) -> None:
    body = json.loads(json.dumps(encode(resource)))
    assert decode(type(resource), body) == resource
    assert body["kind"] == resource.KIND.kind


@given(kind=st.sampled_from(KINDS), data=st.data())
@settings(max_examples=300)
def test_any_json_is_read_or_refused_with_the_field_named(kind: type[Resource], data: st.DataObject) -> None:
    """An object that a foreign program wrote must not take a controller down with anything but Refused."""
    hints = typing.get_type_hints(kind)
    spec = {json_name(field.name): JSON for field in dataclasses.fields(hints["spec"])}
    body = {
        "metadata": data.draw(st.fixed_dictionaries({"name": JSON})),
        "spec": data.draw(st.fixed_dictionaries({}, optional=spec)),
        "status": data.draw(JSON),
    }
    try:
        decode(kind, body)
    except Refused as refusal:
        assert refusal.hint  # noqa: PT017 - most inputs are refused, some are not


def test_what_a_newer_definition_adds_is_tolerated() -> None:
    body = server(bmc=bmc(colour="red"), colour="red") | {"apiVersion": "x", "kind": "y"}
    body["metadata"]["managedFields"] = [{"manager": "x"}]
    assert decode(Server, body).spec.bmc is not None


def test_what_is_not_set_is_not_written() -> None:
    assert encode(decode(Rack, rack())) == rack()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"metadata": {"name": "a"}}, "Server lacks spec; set spec"),
        ({"metadata": {"name": "a"}, "spec": {}}, "ServerSpec lacks spec.bootMACAddress"),
        (server(bootMACAddress=7), "spec.bootMACAddress is 7, not a string"),
        (server(bmc="x"), "spec.bmc is 'x', not an object"),
        (server(interfaces=[{"name": "a"}]), "Interface lacks spec.interfaces[0].macAddress"),
        (server(interfaces={}), "spec.interfaces is {}, not a list"),
    ],
)
def test_a_refusal_names_the_field(data: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused) as refusal:
        from_json(Server, data)
    assert words in str(refusal.value)


def test_who_asks_for_the_same_json_gets_the_same_object_and_for_another_another() -> None:
    body = rack()
    first = decode_shared(Rack, body)
    assert decode_shared(Rack, body) is first
    other = decode_shared(Rack, {**body, "metadata": {"name": "r02"}})
    assert (first.name, other.name) == ("r01", "r02")
    for number in range(2 * SHARED):
        assert decode_shared(Rack, {**body, "metadata": {"name": f"r{number}"}}).name == f"r{number}"
    assert decode_shared(Rack, body) == first
