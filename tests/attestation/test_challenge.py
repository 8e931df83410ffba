"""Sealed states: any replica opens them, nobody else makes, reads or changes them, and they do not live long."""

from __future__ import annotations

import hashlib
import hmac
import pickle
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import SecretBytes
from provisioner.attestation.challenge import (
    LARGEST_STATE_BYTES,
    LARGEST_TEXT,
    LIFE_SECONDS,
    ChallengeKeys,
    ChallengeState,
    IssuedChallenge,
    activation_proof,
    issue,
    open_,
)
from provisioner.attestation.outcome import EvidenceRefused
from provisioner.attestation.sealing import seal_configuration
from tests.attestation.fake_tpm import FakeTpm
from tests.attestation.machine import challenged, new_keys

TPM = FakeTpm("rsa", "rsa")
ASKER = challenged(TPM.endorsement, TPM.attestation)
NOW = 1_800_000_000.5


def issued_by(keys: ChallengeKeys) -> IssuedChallenge:
    return issue(keys, ASKER, TPM.endorsement, TPM.attestation, now=NOW)


def reason(opened: ChallengeState | EvidenceRefused) -> str:
    return opened.reason if isinstance(opened, EvidenceRefused) else "opened"


def test_another_replica_with_the_same_key_opens_it() -> None:
    key = bytes(range(32))
    issued = issued_by(ChallengeKeys(SecretBytes(key)))
    opened = open_(ChallengeKeys(SecretBytes(key)), issued.state, ASKER, now=NOW + 1)
    assert isinstance(opened, ChallengeState)
    assert (opened.challenge_id, opened.nonce, opened.issued_at) == (issued.challenge_id, issued.nonce, NOW)
    assert opened.secret == SecretBytes(TPM.activate(issued.credential_blob, issued.encrypted_secret))
    assert len(issued.challenge_id) == 16


def test_it_opens_while_keys_rotate_and_no_longer() -> None:
    old = SecretBytes(bytes(range(32)))
    state = issued_by(ChallengeKeys(old)).state
    assert reason(open_(new_keys(previous=old), state, ASKER, now=NOW)) == "opened"
    assert reason(open_(new_keys(), state, ASKER, now=NOW)) == "ChallengeForged"


def test_a_stranger_makes_none_and_a_changed_one_does_not_open() -> None:
    keys = new_keys()
    state = issued_by(keys).state
    assert reason(open_(keys, issued_by(new_keys()).state, ASKER, now=NOW)) == "ChallengeForged"
    for at in range(0, len(state), 5):
        changed = bytearray(state)
        changed[at] ^= 4
        assert reason(open_(keys, bytes(changed), ASKER, now=NOW)) == "ChallengeForged"
    for length in (0, 11, 12, 27, 28, len(state) - 1):
        assert reason(open_(keys, state[:length], ASKER, now=NOW)) == "ChallengeForged"
    assert reason(open_(keys, state + bytes(LARGEST_STATE_BYTES), ASKER, now=NOW)) == "ChallengeForged"
    assert reason(open_(keys, state, ASKER, now=NOW)) == "opened"


@pytest.mark.parametrize(
    ("age", "expected"),
    [(-6, "ChallengeExpired"), (-4, "opened"), (LIFE_SECONDS, "opened"), (LIFE_SECONDS + 1, "ChallengeExpired")],
)
def test_it_lives_a_minute_and_clocks_may_differ_by_seconds(age: float, expected: str) -> None:
    keys = new_keys()
    assert reason(open_(keys, issued_by(keys).state, ASKER, now=NOW + age)) == expected


@pytest.mark.parametrize("name", list(vars(ASKER)))
def test_it_is_for_one_server_order_boot_request_and_pair_of_keys(name: str) -> None:
    keys = new_keys()
    opened = open_(keys, issued_by(keys).state, replace(ASKER, **{name: "another"}), now=NOW)
    assert reason(opened) == "ChallengeMismatch"


def test_the_state_is_small_and_says_nothing() -> None:
    longest = "x" * LARGEST_TEXT
    keys = new_keys()
    asker = replace(ASKER, server_uid=longest, order_id=longest, boot_id=longest, request_key_sha256=longest)
    state = issue(keys, asker, TPM.endorsement, TPM.attestation, now=NOW).state
    assert len(state) <= LARGEST_STATE_BYTES
    assert b"xxxx" not in state
    with pytest.raises(Refused, match="boot_id has 257 characters"):
        issue(keys, replace(asker, boot_id=longest + "x"), TPM.endorsement, TPM.attestation, now=NOW)


def test_every_challenge_is_another() -> None:
    keys = new_keys()
    many = [issued_by(keys) for _ in range(8)]
    for name in ("challenge_id", "nonce", "state", "credential_blob", "encrypted_secret"):
        assert len({getattr(each, name) for each in many}) == 8, name


def test_keys_and_secrets_show_themselves_nowhere() -> None:
    keys = new_keys()
    opened = open_(keys, issued_by(keys).state, ASKER, now=NOW)
    assert isinstance(opened, ChallengeState)
    assert (repr(keys), str(keys), f"{keys}", repr(opened.secret)) == ("***",) * 4
    assert "secret" not in repr(opened)
    for hidden in (keys, opened.secret):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(hidden)
    with pytest.raises(Refused, match="has 31 bytes, expected 32"):
        ChallengeKeys(SecretBytes(bytes(31)))


def test_the_configuration_is_sealed_to_secret_challenge_and_server() -> None:
    secret, nonce = SecretBytes(b"s" * 32), b"n" * 32
    sealed = seal_configuration(secret, nonce, "r1-s01", b"a token")
    key = HKDF(SHA256(), 32, nonce, b"provisioner/join/configuration").derive(b"s" * 32)
    assert AESGCM(key).decrypt(sealed.nonce, sealed.ciphertext, b"r1-s01") == b"a token"
    assert len(sealed.ciphertext) == len(b"a token") + 16
    assert len(sealed.nonce) == 12
    assert b"token" not in sealed.ciphertext


def test_the_proof_of_activation_is_as_the_agent_makes_it() -> None:

    made = hmac.new(b"s" * 32, b"provisioner/join/activation" + b"n" * 32, hashlib.sha256).digest()
    assert activation_proof(SecretBytes(b"s" * 32), b"n" * 32) == made
