"""Whatever a TPM answers, and whatever a service asks: an error of the right type, or a request without proof."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.node.join import SealError
from provisioner.node.prover import TpmProver, read_challenge
from provisioner.node.tpm import commands
from provisioner.node.tpm.device import TpmError
from provisioner.node.tpm.identity import TpmIdentity, TpmSecret, split_certificates
from provisioner.node.tpm.return_codes import describe

READERS = [
    commands.read_created,
    commands.read_read_public,
    commands.read_nv_size,
    commands.read_nv,
    commands.read_session,
    commands.read_activated,
    commands.read_quote,
    commands.read_pcrs,
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(["type", "credentialBlob", "encryptedSecret", "nonce", "pcrs", "state", "ciphertext"])


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: str(reader.__name__))
@settings(max_examples=150)
@given(answer=st.binary(max_size=200))
def test_any_answer_is_read_or_refused(reader: Any, answer: bytes) -> None:
    words = ""
    try:
        reader(answer)
    except TpmError as error:
        words = str(error)
    assert len(words) < 300


class Scripted:
    """A device whose answers have the right outside and anything inside."""

    def __init__(self, answers: list[bytes | int]) -> None:
        self.is_open = True
        self._answers = answers
        self.calls = 0

    def call(self, what: str, command: bytes, seconds: float = 10.0) -> bytes:
        self.calls += 1
        assert self.calls < 2000, "it is asked without end"
        answer = self._answers[(self.calls - 1) % len(self._answers)]
        if isinstance(answer, int):
            raise TpmError(f"{what}: refused with {describe(answer)}", answer)
        return answer

    def limit(self, seconds: float) -> None:
        assert seconds > 0

    def close(self) -> None:
        self.is_open = False


@settings(max_examples=300)
@given(answers=st.lists(st.binary(max_size=600) | st.integers(1, 0xFFFFFFFF), min_size=1, max_size=12))
def test_a_tpm_that_answers_anything_ends_in_a_request_that_says_why(answers: list[bytes | int]) -> None:
    device = Scripted(answers)
    prover = TpmProver(lambda: device, "/nowhere", lambda _: None)  # type: ignore[arg-type,return-value]
    evidence = prover.evidence()
    json.dumps(evidence)
    if evidence["type"] == "None":
        assert str(evidence["why"]).isprintable()
        assert len(str(evidence["why"])) <= 200
        assert not device.is_open
    prover.close()


def nv_public(size: int) -> bytes:
    return struct.pack(">HIHIHHH", 14, 0x01C00002, 0x000B, 0, 0, size, 0)


@settings(max_examples=15)
@given(size=st.integers(0, 65535), piece=st.integers(1, 512))
def test_a_certificate_of_any_size_is_asked_for_a_bounded_number_of_times(size: int, piece: int) -> None:
    class Endless(Scripted):
        def call(self, what: str, command: bytes, seconds: float = 10.0) -> bytes:
            self.calls += 1
            if what == "TPM2_NV_ReadPublic":
                return nv_public(size)
            if what == "TPM2_NV_Read":
                return struct.pack(">IH", piece + 2, piece) + b"\x30" * piece
            raise TpmError(what, 0x101)

    device = Endless([b""])
    with pytest.raises(TpmError):
        TpmIdentity(device)  # type: ignore[arg-type]
    assert device.calls < 40_000


@settings(max_examples=100)
@given(challenge=JSON | st.dictionaries(FIELDS, JSON | st.just("TPM2") | st.just("AAAA"), max_size=7))
def test_any_challenge_is_read_or_refused(challenge: Any) -> None:
    words = ""
    try:
        read_challenge(challenge)
    except ValueError as error:
        words = str(error)
    assert len(words) < 200


@settings(max_examples=60)
@given(sealed=JSON | st.dictionaries(FIELDS, JSON | st.just("A256GCM") | st.just("AAAAAAAAAAAAAAAA"), max_size=7))
def test_anything_that_is_said_to_be_sealed_is_refused(sealed: Any) -> None:
    prover = TpmProver(lambda: Scripted([b""]), "/nowhere", lambda _: None)  # type: ignore[arg-type,return-value]
    prover._proven = (TpmSecret(b"s" * 32), b"n" * 32)
    with pytest.raises(SealError):
        prover.open(sealed, "r01-u01")


@settings(max_examples=200)
@given(content=st.binary(max_size=300) | st.binary(max_size=300).map(lambda rest: b"\x30\x82\x00" + rest))
def test_certificates_are_cut_from_anything(content: bytes) -> None:
    assert b"".join(split_certificates(content)) == content[: len(b"".join(split_certificates(content)))]


@given(code=st.integers(0, 0xFFFFFFFF))
def test_every_code_has_words(code: int) -> None:
    assert describe(code).startswith(hex(code))
