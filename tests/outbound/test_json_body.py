"""A JSON answer that is read piece by piece says what it says when it is read at once."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.outbound import json_body
from provisioner.outbound.json_body import PIECE_BYTES, PIECE_VALUES, read_object, values_in

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def in_parts(body: bytes, size: int = 64 * 1024) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


@given(
    document=st.dictionaries(
        st.sampled_from(["jobs", "meta", "é"]) | st.text(), VALUES | st.lists(VALUES, max_size=3), max_size=3
    ),
    beside=st.sets(st.sampled_from(["meta", "é", ""])),
    indent=st.sampled_from([None, 2]),
    ascii_=st.booleans(),
    size=st.sampled_from([1, 7, 10_000]),
)
@settings(max_examples=60)
def test_pieces_make_up_the_whole(
    document: dict[str, Any], beside: set[str], indent: int | None, ascii_: bool, size: int
) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_).encode(errors="surrogatepass")
    expected = json.loads(body.decode(errors="surrogateescape"))
    rest, kept = read_object(in_parts(body, size), "jobs", lambda name, item: (name, item), beside=beside)
    jobs = expected.pop("jobs", None)
    if isinstance(jobs, list):
        assert kept == [(None, item) for item in jobs]
    else:
        assert kept == (list(jobs.items()) if isinstance(jobs, dict) else None)
    assert rest == {name: value for name, value in expected.items() if name in beside}


def test_what_is_skipped_may_have_any_size_and_takes_no_memory() -> None:
    """As the schemas of an OpenAPI document, which are one value of many megabytes."""
    many = itertools.repeat(b'{"type": "string", "description": "a \\" [ { in a string"},' * 1000, 8)
    parts = itertools.chain([b'{"schemas": ['], many, [b"0], "], [b'"paths": {"/node": {"post": {}}}, "x": "y"}'])
    tracemalloc.start()
    try:
        rest, kept = read_object(parts, "paths", lambda name, value: (name, value), beside=("x",))
        assert tracemalloc.get_traced_memory()[1] < 300 * 1024
    finally:
        tracemalloc.stop()
    assert (rest, kept) == ({"x": "y"}, [("/node", {"post": {}})])


def test_only_what_is_kept_is_kept() -> None:
    items = [{"id": number, "é": "ü" * 1000} for number in range(300)]
    body = json.dumps({"jobs": items, "errors": []}, ensure_ascii=False).encode()
    kept = read_object(in_parts(body), "jobs", lambda _, item: item["id"], beside=("errors",))
    assert kept == ({"errors": []}, list(range(300)))


@pytest.mark.parametrize("size", PIECE_BYTES[:-1])
def test_a_value_larger_than_a_piece_is_read(size: int) -> None:
    text = "x" * (size + 10)
    body = json.dumps({"jobs": [text], "b": text}).encode()
    assert read_object(in_parts(body), "jobs", lambda _, item: item, beside=("b",)) == ({"b": text}, [text])


def test_an_object_that_is_too_large_comes_without_what_makes_it_so() -> None:
    """As a job of Slurm on 1,000 nodes, of which each core is listed."""
    cores = [{"index": number, "status": ["ALLOCATED"]} for number in range(PIECE_VALUES)]
    job = {"job_id": 7, "job_resources": {"nodes": cores}, "nodes": "r[000-999]", "empty": [], "job_state": ["RUNNING"]}
    body = json.dumps({"jobs": [job, {"job_id": 8}]}).encode()
    _, kept = read_object(in_parts(body), "jobs", lambda _, item: item)
    del job["job_resources"]
    assert kept == [job, {"job_id": 8}]


@pytest.mark.parametrize(
    "job",
    [
        {"nodes": "x" * PIECE_BYTES[-1]},
        {f"{number}": "x" * 100_000 for number in range(12)},
        [["x" * 1000] * 2000],
    ],
    ids=["a text", "many members", "a list"],
)
def test_what_is_too_large_by_other_things_is_refused(job: Any) -> None:
    with pytest.raises(ValueError, match="one value has more than 1048576 bytes"):
        read_object(in_parts(json.dumps({"jobs": [job]}).encode()), "jobs", lambda _, item: item)


def test_bytes_that_are_no_text_cost_their_own_string_alone() -> None:
    body = b'{"jobs": [{"name": "a\xff\xe9b"}, {"name": "c"}], "x": 1}'
    rest, kept = read_object([body], "jobs", lambda _, item: item["name"], beside=("x",))
    assert (rest, kept) == ({"x": 1}, ["a\udcff\udce9b", "c"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"jobs": [',
        b'{"jobs": [1 2]}',
        b'{"jobs": [1,]}',
        b'{"jobs" 1}',
        b'{"jobs": [' + b"[" * 200_000,
        b'{"jobs": ["' + b"x" * (PIECE_BYTES[-1] + 1) + b'"]}',
        b'{"jobs": [[' + b"[]," * PIECE_VALUES + b"[]]]}",
        b'{"a": [',
        b'{"a": "' + b"x" * (PIECE_BYTES[-1] + 1),
        b'{"a": ["' + b"x" * (2 * PIECE_BYTES[-1]),
    ],
    ids=[
        "nothing",
        "list",
        "open",
        "cut",
        "no comma",
        "comma",
        "no colon",
        "nested",
        "long text",
        "many values",
        "open in what is skipped",
        "long text beside",
        "long text in what is skipped",
    ],
)
def test_what_cannot_be_read_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_object(in_parts(body), "jobs", lambda _, item: item)


@given(document=VALUES)
@settings(max_examples=30)
def test_no_document_has_more_values_than_are_counted(document: Any) -> None:
    def values(value: Any) -> int:
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + sum(map(values, inside))

    assert values(document) <= 1 + values_in(json.dumps(document).encode())


def test_a_list_of_too_many_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_body, "MAX_ITEMS", 3)
    assert read_object([b'{"jobs": [0, 0, 0]}'], "jobs", lambda _, item: item) == ({}, [0, 0, 0])
    with pytest.raises(ValueError, match="more than 3 values in one list"):
        read_object([b'{"jobs": [0, 0, 0, 0'], "jobs", lambda _, item: item)
