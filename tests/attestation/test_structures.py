"""TPM structures and the attributes of keys, and, by chance, whatever else a stranger may send in their place."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.api.machinery.errors import Refused
from provisioner.attestation.authenticode import authenticode_sha256
from provisioner.attestation.challenge import QUOTED_PCRS, open_
from provisioner.attestation.endorsement import check_certificates, load_authorities
from provisioner.attestation.event_log.parse import Event, parse_event_log
from provisioner.attestation.event_log.words import LONGEST_WORDS, describe
from provisioner.attestation.judge import EvidenceRefused, parse_keys
from provisioner.attestation.keys import _POLICY_A, _POLICY_B, check_attestation_key, check_endorsement_key
from provisioner.attestation.quote import verify_signature
from provisioner.attestation.tpm.algorithms import Algorithm, Attribute, Curve
from provisioner.attestation.tpm.attest import parse_quote
from provisioner.attestation.tpm.public import PublicArea, Scheme, Symmetric, parse_public
from provisioner.attestation.tpm.wire import MalformedTpmData
from tests.attestation.fake_tpm import FakeTpm, attest, attestation_area, new_key, zeros
from tests.attestation.firmware_log import a_boot, write_log
from tests.attestation.machine import KEYS, challenged
from tests.attestation.test_endorsement import leaf
from tests.attestation.test_measurements import a_program

ECC, RSA = FakeTpm("ecc", "ecc"), FakeTpm("rsa", "rsa")
QUOTE = attest(bytes(32), zeros())


@pytest.mark.parametrize("tpm", [ECC, RSA])
def test_a_public_area_is_read_written_and_named(tpm: FakeTpm) -> None:
    for public in (tpm.endorsement, tpm.attestation):
        assert parse_public(public.marshalled) == public
        assert public.name() == b"\0\x0b" + hashlib.sha256(public.marshalled).digest()
    assert tpm.attestation.public_key == tpm.attestation_key.public_key()


def test_a_quote_is_read_as_the_tpm_wrote_it() -> None:
    quote = parse_quote(QUOTE)
    assert (quote.clock.reset_count, quote.clock.restart_count) == (7, 2)
    assert quote.selection == ((Algorithm.SHA256, frozenset(QUOTED_PCRS)),)


@pytest.mark.parametrize(
    ("at", "data", "words"),
    [
        (0, b"\0", "begins with 0x00544347"),
        (len(QUOTE) - 44, b"\0\0\0\x11", "selects 17 banks"),
        (len(QUOTE) - 38, b"\x09", "selects by 9 bytes"),
        (len(QUOTE) - 53, b"\2", "clock is safe by 2"),
    ],
)
def test_what_is_no_quote_is_refused(at: int, data: bytes, words: str) -> None:
    with pytest.raises(MalformedTpmData, match=words):
        parse_quote(QUOTE[:at] + data + QUOTE[at + len(data) :])


def test_a_quote_that_selects_a_bank_twice_is_refused() -> None:
    bank = QUOTE[-40:-34]
    twice = QUOTE[:-44] + struct.pack(">I", 2) + bank * 2 + QUOTE[-34:]
    with pytest.raises(MalformedTpmData, match="selects the bank SHA256 twice"):
        parse_quote(twice)


def changed(public: PublicArea, **changes: Any) -> PublicArea:
    return replace(public, part=replace(public.part, **changes))


AES128 = Symmetric(Algorithm.AES, 128, Algorithm.CFB)


@pytest.mark.parametrize(
    ("public", "words"),
    [
        (
            changed(ECC.attestation, scheme=Scheme(Algorithm.ECDSA, Algorithm.SHA1)),
            "signs by ECDSA with SHA1, expected ECDSA",
        ),
        (changed(ECC.attestation, scheme=Scheme(Algorithm.NULL)), "signs by NULL with"),
        (changed(RSA.attestation, scheme=Scheme(Algorithm.RSAPSS, Algorithm.SHA256)), "signs by RSAPSS"),
        (
            replace(ECC.attestation, attributes=ECC.attestation.attributes | Attribute.DECRYPT),
            "has DECRYPT, which it may not",
        ),
        (
            replace(ECC.attestation, attributes=Attribute.SIGN_ENCRYPT),
            "lacks FIXED_TPM, FIXED_PARENT, SENSITIVE_DATA_ORIGIN",
        ),
        (replace(ECC.attestation, name_algorithm=Algorithm.SHA1), "is named by SHA1"),
        (attestation_area(new_key("rsa", 3072)), "has 3072 bits, expected 2048"),
        (changed(ECC.attestation, curve=Curve.NIST_P384), "is on the curve 0x0004, expected P-256"),
        (changed(ECC.attestation, x=b"\1" * 32), "is no key"),
    ],
)
def test_a_key_that_may_not_attest_is_told_why(public: PublicArea, words: str) -> None:
    assert words in (check_attestation_key(public) or "")


@pytest.mark.parametrize(
    ("public", "words"),
    [
        (replace(ECC.endorsement, auth_policy=bytes(32)), "policy is none of the TCG's"),
        (changed(ECC.endorsement, symmetric=replace(AES128, key_bits=256)), "by other than AES-128 in CFB"),
        (changed(ECC.endorsement, scheme=Scheme(Algorithm.ECDH, Algorithm.SHA256)), "scheme is ECDH, expected NULL"),
        (replace(RSA.endorsement, attributes=RSA.endorsement.attributes & ~Attribute.FIXED_TPM), "lacks FIXED_TPM"),
        (replace(RSA.endorsement, name_algorithm=Algorithm.SHA384), "is named by SHA384"),
        (changed(ECC.endorsement, y=b"\2" * 32), "is no key"),
    ],
)
def test_what_is_no_endorsement_key_is_told_why(public: PublicArea, words: str) -> None:
    assert words in (check_endorsement_key(public) or "")


@pytest.mark.parametrize("tpm", [ECC, RSA])
def test_keys_as_they_should_be_are_fit_with_either_policy_of_the_profile(tpm: FakeTpm) -> None:
    high = Attribute.USER_WITH_AUTH | tpm.endorsement.attributes
    assert check_endorsement_key(tpm.endorsement) is None
    assert check_endorsement_key(replace(tpm.endorsement, auth_policy=_POLICY_B, attributes=high)) is None
    assert check_attestation_key(tpm.attestation) is None


def test_the_policies_are_those_of_the_profile() -> None:
    """By the commands of which the TCG's EK Credential Profile has them."""

    def extended(*parts: bytes) -> bytes:
        return hashlib.sha256(b"".join(parts)).digest()

    secret = extended(extended(bytes(32), struct.pack(">II", 0x151, 0x4000000B)), b"")
    assert secret == _POLICY_A
    by_nv = bytes.fromhex("3767e2edd43ff45a3a7e1eaefcef78643dca964632e7aad82c673a30d8633fde")
    assert extended(bytes(32), struct.pack(">I", 0x171), secret, by_nv) == _POLICY_B


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (ECC.endorsement.marshalled + b"\0", "1 bytes behind its end"),
        (ECC.endorsement.marshalled[:-1], "1 too early"),
        (b"\0\x08" + ECC.endorsement.marshalled[2:], "of type KEYEDHASH, expected RSA or ECC"),
        (bytes(2000), "at most 1024 are expected"),
        (changed(RSA.endorsement, key_bits=1024).marshalled, "has 1024 bits"),
        (changed(RSA.endorsement, exponent=3).marshalled, "exponent is 3"),
        (changed(RSA.endorsement, modulus=bytes(256)).marshalled, "no odd number of 2048 bits"),
        (changed(RSA.endorsement, modulus=b"").marshalled, "no odd number of 2048 bits"),
        (changed(ECC.endorsement, curve=16).marshalled, "curve is 0x0010"),
        (changed(ECC.endorsement, symmetric=Symmetric(0x26, 128, Algorithm.CFB)).marshalled, "algorithm is 0x0026"),
        (changed(ECC.endorsement, scheme=Scheme(0x1A, 11)).marshalled, "scheme is 0x001a"),
    ],
)
def test_what_is_no_public_area_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(MalformedTpmData, match=words):
        parse_public(data)


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        (struct.pack(">HH", Algorithm.RSAPSS, Algorithm.SHA256), "is RSAPSS with SHA256"),
        (struct.pack(">HH", Algorithm.ECDSA, Algorithm.SHA1), "is ECDSA with SHA1"),
        (ECC.sign(QUOTE) + b"\0", "behind its end"),
        (bytes(700), "at most 600"),
        (b"", "ends after 0 bytes"),
    ],
    ids=["another scheme", "another digest", "a byte more", "too long", "nothing"],  # a signature is another each time
)
def test_a_signature_of_another_kind_is_refused(signature: bytes, words: str) -> None:
    with pytest.raises(MalformedTpmData, match=words):
        verify_signature(ECC.attestation, QUOTE, signature)
    assert verify_signature(ECC.attestation, QUOTE, ECC.sign(QUOTE))


def test_a_signature_by_a_key_of_the_other_kind_is_none() -> None:
    assert not verify_signature(ECC.attestation, QUOTE, RSA.sign(QUOTE))
    assert not verify_signature(RSA.attestation, QUOTE, ECC.sign(QUOTE))
    zero = struct.pack(">HH", Algorithm.ECDSA, Algorithm.SHA256) + struct.pack(">H", 0) * 2
    assert not verify_signature(ECC.attestation, QUOTE, zero)


def read_certificates(data: bytes) -> None:
    check_certificates(ECC.endorsement, [data], (), datetime(2026, 11, 25, tzinfo=UTC))


def read_keys(data: bytes) -> None:
    keys = parse_keys(data, data, [data])
    if not isinstance(keys, EvidenceRefused):
        check_endorsement_key(keys.endorsement)
        check_attestation_key(keys.attestation)


def read_log(data: bytes) -> None:
    for event in parse_event_log(data).events:
        assert len(describe(event)) <= LONGEST_WORDS


PARSERS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "public area, RSA": (parse_public, RSA.endorsement.marshalled),
    "public area, ECC": (parse_public, ECC.attestation.marshalled),
    "keys": (read_keys, ECC.endorsement.marshalled),
    "quote": (parse_quote, QUOTE),
    "signature, RSA": (lambda data: verify_signature(RSA.attestation, b"x", data), RSA.sign(b"x")),
    "signature, ECC": (lambda data: verify_signature(ECC.attestation, b"x", data), ECC.sign(b"x")),
    "event log": (read_log, write_log(a_boot())),
    "program": (authenticode_sha256, a_program(certificate=b"x" * 8)),
    "certificate": (read_certificates, leaf()),
    "authorities": (load_authorities, b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"),
    "challenge": (lambda data: open_(KEYS, data, challenged(ECC.endorsement, ECC.attestation), now=0), bytes(64)),
}


@pytest.mark.parametrize("name", list(PARSERS))
@settings(max_examples=150)
@given(data=st.data())
def test_whatever_is_sent_a_parser_reads_it_or_refuses_it(name: str, data: st.DataObject) -> None:
    parser, good = PARSERS[name]
    at = data.draw(st.integers(0, len(good)))
    put, over = data.draw(st.binary(max_size=12)), data.draw(st.integers(0, 12))
    sent = data.draw(st.sampled_from([good[:at] + put + good[at + over :], good[:at], put]))
    # Any other error fails the test.
    with suppress(Refused):
        parser(sent)


@settings(max_examples=300)
@given(kind=st.sampled_from([4, 5, 6, 0x0D, 0x80000001, 0x80000003, 0x80000004, 0x77]), data=st.binary(max_size=300))
def test_whatever_an_event_holds_it_is_told_in_printable_words(kind: int, data: bytes) -> None:
    told = describe(Event(1, 4, kind, bytes(32), data))
    assert 0 < len(told) <= LONGEST_WORDS
    assert all(each.isprintable() for each in told)


NODES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 25), st.binary(max_size=40)), max_size=6)


@settings(max_examples=200)
@given(nodes=NODES)
def test_whatever_way_a_program_came_it_is_told(nodes: list[tuple[int, int, bytes]]) -> None:
    path = b"".join(struct.pack("<BBH", kind, part, 4 + len(body)) + body for kind, part, body in nodes)
    told = describe(Event(1, 4, 0x80000003, bytes(32), bytes(24) + struct.pack("<Q", len(path)) + path))
    assert told.startswith(("boot program", "event of type"))
    assert all(each.isprintable() for each in told)
