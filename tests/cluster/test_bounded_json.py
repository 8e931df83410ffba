"""Lists are read object by object, whatever is in them and wherever the parts of an answer begin."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from provisioner.cluster import bounded_json
from provisioner.cluster.bounded_json import decode_shallow, read_list

ITEMS = [
    {"name": str(i), "text": 'a"\\{[ü😀' * (i % 50), "list": [{}, [], {"n": i / 7}] * (i % 5), "none": None}
    for i in range(100)
]
REST = {"kind": "PodList", "metadata": {"resourceVersion": "5", "continue": "x"}}


def parts(text: str, size: int) -> Iterator[bytes]:
    data = text.encode()
    return (data[at : at + size] for at in range(0, len(data), size))


def read(text: str, size: int = 65536) -> tuple[list[Any], dict[str, Any]]:
    items: list[Any] = []
    return items, read_list(parts(text, size), items.append)


@pytest.mark.parametrize("order", ["kind metadata items", "items kind metadata", "metadata items kind"])
@pytest.mark.parametrize("size", [1, 7, 1000, 1 << 20])
def test_items_and_the_rest_are_read_from_any_parts_and_in_any_order(order: str, size: int) -> None:
    whole = REST | {"items": ITEMS}
    body = {key: whole[key] for key in order.split()}
    assert read(json.dumps(body, ensure_ascii=False), size) == (ITEMS, REST)
    assert read(json.dumps(body, indent=1), size) == (ITEMS, REST)


def test_a_list_without_items_has_none() -> None:
    assert read('{"items": [], "metadata": {}}') == ([], {"metadata": {}})
    assert read('{"items": null, "metadata": {}}') == ([], {"items": None, "metadata": {}})


@pytest.mark.parametrize("text", ["", "<html>", "[1]", '{"items": [{"a": 1}', '{"a": 1', '{"a" 1}'])
def test_what_is_no_whole_list_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|ended too soon"):
        read(text)


@pytest.mark.parametrize("size", [1000, 65536])
def test_an_object_that_is_too_large_is_passed_over_and_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(bounded_json, "OBJECT_BYTES", 100_000)
    large = {"text": '"}{x\\' * 100_000, "list": [{}]}
    assert read(json.dumps({"items": [{"a": 1}, large, {"b": 2}], **REST}), size) == ([{"a": 1}, {"b": 2}], REST)


def test_an_object_that_is_nested_too_deeply_is_passed_over() -> None:
    assert read('{"items": [{"a": 1}, ' + "[" * 9000 + "]" * 9000 + ', {"b": 2}], "kind": "L"}', 1000) == (
        [{"a": 1}, {"b": 2}],
        {"kind": "L"},
    )


def test_an_object_that_whoever_keeps_it_finds_too_deep_takes_no_other_one_along() -> None:
    items: list[Any] = []

    def keep(item: dict[str, Any]) -> None:
        if item["name"] == "deep":
            raise RecursionError
        items.append(item["name"])

    names = [{"name": name} for name in ("a", "deep", "b", "c")]
    read_list(parts(json.dumps({"items": names}), 7), keep)
    assert items == ["a", "b", "c"]


def test_what_is_nested_is_decoded_down_to_a_level() -> None:
    text = json.dumps({"a": {"b": [1, {"c": []}, "]}[{"], "d": []}, "e": 'x"{', "f": [[2], 3]})
    assert decode_shallow(text, 1) == {"a": None, "e": 'x"{', "f": None}
    assert decode_shallow(text, 2) == {"a": {"b": None, "d": None}, "e": 'x"{', "f": [None, 3]}
    assert decode_shallow(text, 9) == json.loads(text)
    assert decode_shallow('{"a": ' + "[" * 9000 + "]" * 9000 + ', "b": {}}', 2) == {"a": [None], "b": {}}
    with pytest.raises(ValueError, match="Expecting"):
        decode_shallow('{"a": ' + "[" * 9000, 2)


def test_memory_is_that_of_one_object_however_many_there_are() -> None:
    text = random.Random(1).randbytes(300_000).hex()

    def listed() -> Iterator[bytes]:
        yield b'{"kind": "PodList", "items": ['
        for number in range(100):
            yield json.dumps({"number": number, "text": text}).encode() + (b"," if number < 99 else b"")
        yield b'], "metadata": {}}'

    names: list[int] = []
    tracemalloc.start()
    try:
        read_list(listed(), lambda item: names.append(item["number"]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert names == list(range(100))
    assert peak < 10 * len(text)
