"""A JSON answer that is read piece by piece says what it says when it is read at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.outbound.json_body import PIECE_BYTES, read_object

VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(
    document=st.dictionaries(st.sampled_from(["jobs", "meta", "é"]) | st.text(), VALUES | st.lists(VALUES), max_size=5),
    indent=st.sampled_from([None, 2]),
    ascii_=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_pieces_make_up_the_whole(document: dict[str, Any], indent: int | None, ascii_: bool) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_).encode(errors="surrogatepass")
    expected = json.loads(body.decode(errors="surrogateescape"))
    rest, kept = read_object(body, "jobs", lambda item: item)
    jobs = expected.pop("jobs", None) if isinstance(expected.get("jobs"), list) else None
    assert (rest, kept) == (expected, jobs)


def test_only_what_is_kept_is_kept() -> None:
    items = [{"id": number, "é": "ü" * 1000} for number in range(300)]
    body = json.dumps({"jobs": items, "errors": []}, ensure_ascii=False).encode()
    assert read_object(body, "jobs", lambda item: item["id"]) == ({"errors": []}, list(range(300)))


def test_a_value_larger_than_the_first_piece_is_read() -> None:
    text = "x" * (PIECE_BYTES[0] + 10)
    assert read_object(json.dumps({"jobs": [text], "b": text}).encode(), "jobs", str) == ({"b": text}, [text])


def test_bytes_that_are_no_text_cost_their_own_string_alone() -> None:
    rest, kept = read_object(b'{"jobs": [{"name": "a\xff\xe9b"}, {"name": "c"}], "x": 1}', "jobs", lambda j: j["name"])
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
        b'{"jobs": ["' + b"x" * (PIECE_BYTES[1] + 1) + b'"]}',
        b'{"a": [' + b"[]," * PIECE_BYTES[1] + b"[]]}",
    ],
    ids=["nothing", "list", "open", "cut", "no comma", "comma", "no colon", "nested", "long text", "many values"],
)
def test_what_cannot_be_read_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_object(body, "jobs", lambda item: item)
