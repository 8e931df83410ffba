"""Join requests are read strictly."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.machinery.errors import Refused
from provisioner.join.admission.request import parse_join_request
from tests.join.samples import BOOT_ID, KEY, MAC, body, key_digest


def test_a_request_is_read() -> None:
    request = parse_join_request(body(macAddress="52-54-00-12-34-56", bootID=BOOT_ID.upper()))
    assert request.mac_address == MAC
    assert request.boot_id == BOOT_ID
    assert request.request_key_sha256 == key_digest(KEY)
    assert request.evidence_type == "None"


def test_a_machine_without_smbios_sends_an_empty_uuid() -> None:
    assert parse_join_request(body(systemUUID="")).system_uuid is None


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'["TPM2",' + b"[" * 60_000, "not JSON"),
        (b'{"TPM2":' * 12_000, "not JSON"),
        (b'{"TPM2": ' + b"9" * 60_000 + b"}", "not JSON"),
        (b"[" * 60_000, "longer than 4096 bytes, and has no evidence"),
        (body(surprise="x" * 4096), "longer than 4096 bytes, and has no evidence"),
        (body(systemUUID='"TPM2"' + "x" * 4096), "longer than 4096 bytes, and has no evidence"),
        (b'{"macAddress": NaN}', "not JSON"),
        (b'{"requestKey": "a", "requestKey": "b"}', "not JSON"),
        (b"[]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{}", "bootID is absent"),
        (body(surprise=1), "unknown field 'surprise'"),
        (body(macAddress=None), "macAddress is absent"),
        (body(macAddress=["52:54:00:12:34:56"]), "macAddress is not a short string"),
        (body(macAddress="52:54:00:12:34"), "not six bytes"),
        (body(macAddress="ff:ff:ff:ff:ff:ff"), "not a station"),
        (body(bootID="x"), "bootID is not a UUID"),
        (body(systemUUID="x"), "systemUUID is not a UUID"),
        (body(systemUUID={}), "systemUUID is not a short string"),
        (body(imageDigest="sha256:abc"), "digest 'sha256:abc'"),
        (body(requestKey="ab"), "requestKey is not 64"),
        (body(requestKey="AB" * 32), "requestKey is not 64"),
        (body(requestKey="a" * 300), "requestKey is not a short string"),
        (body(evidence="None"), "evidence is not an object"),
        (body(evidence={}), "evidence is not an object"),
        (body(evidence={"type": "x" * 41}), "evidence is not an object"),
    ],
)
def test_a_malformed_request_is_refused_in_words(raw: bytes, words: str) -> None:
    with pytest.raises(Refused, match=words):
        parse_join_request(raw)


def test_a_refusal_never_quotes_the_request_key() -> None:
    key = "ab" * 31 + "zz"
    with pytest.raises(Refused) as refused:
        parse_join_request(body(requestKey=key))
    assert "ab" * 31 not in str(refused.value)
    with pytest.raises(Refused) as refused:
        parse_join_request(body()[:-1])
    assert KEY not in repr(refused.value)
    assert refused.value.__suppress_context__


def words_of(raw: bytes) -> str:
    """Why it is refused; "taken" if it is not."""
    try:
        parse_join_request(raw)
    except Refused as refused:
        return str(refused)
    return "taken"


@given(st.binary(max_size=200), st.integers(0, len(body()) - 1))
def test_no_bytes_raise_anything_else(raw: bytes, kept: int) -> None:
    assert words_of(raw) not in ("", "taken")
    assert words_of(body()[:kept] + raw) != ""
    assert words_of(body()[:kept]) not in ("", "taken"), "one that was cut is none"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["macAddress", "systemUUID", "bootID", "imageDigest", "requestKey", "evidence"]), JSON)
def test_no_value_of_a_field_raises_anything_else(field: str, value: object) -> None:
    data = json.loads(body())
    data[field] = value
    assert words_of(json.dumps(data).encode()) != ""
    data[field] = json.loads(body())[field]
    assert words_of(json.dumps(data).encode()) == "taken"
