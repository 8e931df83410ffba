"""The protocol against a TPM that is none of ours (swtpm): keys, credentials, quotes, certificates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from provisioner.api.machinery.values import SecretBytes
from provisioner.attestation.challenge import QUOTED_PCRS
from provisioner.attestation.credential import make_credential
from provisioner.attestation.endorsement import (
    NotVouched,
    Vouched,
    check_certificates,
    endorsement_key_sha256,
    load_authorities,
)
from provisioner.attestation.judge import (
    ChainPolicy,
    EvidenceAccepted,
    EvidenceRefused,
    KnownIdentity,
    judge_evidence,
)
from provisioner.attestation.keys import check_attestation_key, check_endorsement_key
from provisioner.attestation.quote import verify_quote
from provisioner.attestation.tpm.algorithms import Attribute
from provisioner.attestation.tpm.attest import Quote, parse_quote
from tests.attestation.conftest import RealMachine
from tests.attestation.machine import NOW, a_challenge, expected_boot
from tests.attestation.real_tpm import AK_ATTRIBUTES, ENDORSEMENT, OWNER, Loaded, TpmError, ak_template, ek_template

KINDS = [(ek, ak) for ek in ("rsa", "ecc") for ak in ("rsa", "ecc")]
NONCE = b"a nonce of 32 bytes, quoted once"


@contextmanager
def loaded(machine: RealMachine, *templates: bytes) -> Iterator[list[Loaded]]:
    """A TPM has room for few keys."""
    keys = [machine.load(template) for template in templates]
    try:
        yield keys
    finally:
        for key in keys:
            machine.tpm.flush(key.handle)


@pytest.mark.parametrize(("ek", "ak"), KINDS)
def test_a_machine_with_its_registered_tpm_that_booted_what_it_should_is_accepted(
    booted_machine: RealMachine, ek: str, ak: str
) -> None:
    with loaded(booted_machine, ek_template(ek), ak_template(ak)) as (endorsement, attestation):
        issued, state = a_challenge(endorsement.area, attestation.area)
        evidence = booted_machine.answer(issued, endorsement, attestation)
    identity = KnownIdentity(registered=endorsement_key_sha256(endorsement.area))
    accepted = judge_evidence(evidence, identity, state, expected_boot(), NOW)
    assert isinstance(accepted, EvidenceAccepted), accepted
    assert accepted.firmware == "model-a-1.0"
    assert accepted.keys.authority is None
    assert accepted.tpm_counts_are_true


@pytest.mark.parametrize("kind", ["rsa", "ecc"])
def test_what_a_tpm_says_of_its_keys_is_read_and_written_byte_for_byte(booted_machine: RealMachine, kind: str) -> None:
    with loaded(booted_machine, ek_template(kind), ak_template(kind)) as (endorsement, attestation):
        assert endorsement.area.marshalled == endorsement.public
        assert attestation.area.marshalled == attestation.public
    assert check_endorsement_key(endorsement.area) is None
    assert check_attestation_key(attestation.area) is None
    assert check_attestation_key(endorsement.area) == "the attestation key lacks USER_WITH_AUTH, SIGN_ENCRYPT"
    assert check_endorsement_key(attestation.area) == "the endorsement key lacks ADMIN_WITH_POLICY, DECRYPT"


@pytest.mark.parametrize("ek", ["rsa", "ecc"])
def test_a_credential_for_a_key_of_another_tpm_is_not_opened(
    booted_machine: RealMachine, other_machine: RealMachine, ek: str
) -> None:
    with (
        loaded(booted_machine, ek_template(ek), ak_template("ecc")) as (endorsement, own),
        loaded(other_machine, ak_template("ecc")) as (foreign,),
    ):
        blob, encrypted = make_credential(endorsement.area, foreign.area.name(), SecretBytes(b"secret"))
        with pytest.raises(TpmError):
            booted_machine.tpm.activate(own, endorsement, blob, encrypted)
        blob, encrypted = make_credential(endorsement.area, own.area.name(), SecretBytes(b"secret"))
        assert booted_machine.tpm.activate(own, endorsement, blob, encrypted) == b"secret"


def test_another_machines_tpm_does_not_open_the_credential_for_a_registered_one(
    booted_machine: RealMachine, other_machine: RealMachine
) -> None:
    with (
        loaded(booted_machine, ek_template("ecc")) as (registered,),
        loaded(other_machine, ek_template("ecc"), ak_template("ecc")) as (endorsement, attestation),
    ):
        blob, encrypted = make_credential(registered.area, attestation.area.name(), SecretBytes(b"secret"))
        with pytest.raises(TpmError):
            other_machine.tpm.activate(attestation, endorsement, blob, encrypted)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        (AK_ATTRIBUTES & ~Attribute.RESTRICTED, "lacks RESTRICTED"),
        (AK_ATTRIBUTES & ~Attribute.FIXED_TPM & ~Attribute.FIXED_PARENT, "lacks FIXED_TPM, FIXED_PARENT"),
        (AK_ATTRIBUTES & ~Attribute.USER_WITH_AUTH, "lacks USER_WITH_AUTH"),
    ],
)
def test_a_key_that_would_sign_what_it_is_told_does_not_attest(
    booted_machine: RealMachine, attributes: Attribute, words: str
) -> None:
    with loaded(booted_machine, ak_template("ecc", attributes)) as (key,):
        assert words in (check_attestation_key(key.area) or "")


def test_the_vendors_certificate_vouches_for_its_tpm_and_for_no_other(
    booted_machine: RealMachine, other_machine: RealMachine
) -> None:
    certificate = booted_machine.tpm.endorsement_certificate()
    root = load_authorities((booted_machine.authority / "swtpm-localca-rootca-cert.pem").read_bytes())
    issuer = load_authorities((booted_machine.authority / "issuercert.pem").read_bytes())
    now = datetime.now(UTC)
    with (
        loaded(booted_machine, ek_template("rsa")) as (endorsement,),
        loaded(other_machine, ek_template("rsa")) as (other,),
    ):
        vouched = check_certificates(endorsement.area, [certificate], issuer, now)
        assert isinstance(vouched, Vouched)
        assert vouched.authority == "'CN=swtpm-localca'"
        brought = [certificate, *(each.public_bytes(Encoding.DER) for each in issuer)]
        by_root = check_certificates(endorsement.area, brought, root, now)
        assert isinstance(by_root, Vouched)
        assert by_root.authority == "'CN=swtpm-localca-rootca'"
        for refused, words in (
            (check_certificates(other.area, [certificate], issuer, now), "for another key"),
            (check_certificates(endorsement.area, [certificate], root, now), "is no configured authority"),
            (check_certificates(endorsement.area, [certificate], (), now), "is no configured authority"),
        ):
            assert isinstance(refused, NotVouched)
            assert words in refused.why


def test_a_vendors_certificate_is_enough_only_where_a_site_says_so(booted_machine: RealMachine) -> None:
    authorities = load_authorities((booted_machine.authority / "issuercert.pem").read_bytes())
    certificate = booted_machine.tpm.endorsement_certificate()
    with loaded(booted_machine, ek_template("rsa"), ak_template("rsa")) as (endorsement, attestation):
        issued, state = a_challenge(endorsement.area, attestation.area)
        evidence = booted_machine.answer(issued, endorsement, attestation)
    evidence = replace(evidence, keys=replace(evidence.keys, certificates=(certificate,)))
    now = datetime.now(UTC)

    def judged(identity: KnownIdentity) -> EvidenceAccepted | EvidenceRefused:
        return judge_evidence(evidence, identity, state, expected_boot(), now)

    unknown = judged(KnownIdentity(registered=None, authorities=authorities))
    assert isinstance(unknown, EvidenceRefused)
    assert unknown.reason == "EndorsementKeyUnknown"
    assert endorsement_key_sha256(endorsement.area) in unknown.message
    known = judged(KnownIdentity(registered=None, authorities=authorities, chain=ChainPolicy.SUFFICES))
    assert isinstance(known, EvidenceAccepted)
    assert known.keys.authority == "'CN=swtpm-localca'"


@pytest.mark.parametrize("kind", ["rsa", "ecc"])
def test_a_quote_holds_for_its_nonce_its_pcrs_its_key_and_not_a_bit_else(
    booted_machine: RealMachine, other_machine: RealMachine, kind: str
) -> None:
    with (
        loaded(booted_machine, ak_template(kind)) as (key,),
        loaded(other_machine, ak_template(kind)) as (foreign,),
    ):
        quote, signature = booted_machine.tpm.quote(key, NONCE, QUOTED_PCRS)
        fewer, fewer_signature = booted_machine.tpm.quote(key, NONCE, QUOTED_PCRS[:-1])
        forged, forged_signature = other_machine.tpm.quote(foreign, NONCE, QUOTED_PCRS)
    values = booted_machine.values()

    def judged(
        quote: bytes = quote, signature: bytes = signature, nonce: bytes = NONCE, values: object = values
    ) -> object:
        return verify_quote(key.area, quote, signature, nonce=nonce, pcrs=QUOTED_PCRS, values=values)  # type: ignore[arg-type]

    good = judged()
    assert isinstance(good, Quote)
    assert good.clock.reset_count >= 0
    assert refusal(judged(nonce=bytes(32))) == "QuoteNonceMismatch"
    assert refusal(judged(values={**values, 4: bytes(32)})) == "QuoteDigestMismatch"
    assert refusal(judged(fewer, fewer_signature)) == "QuoteSelectionMismatch"
    assert refusal(judged(forged, forged_signature)) == "QuoteSignatureInvalid"
    for at in range(0, len(quote), 7):
        tampered = bytearray(quote)
        tampered[at] ^= 1
        assert refusal(judged(bytes(tampered))) in ("QuoteSignatureInvalid", "EvidenceMalformed")
    tampered = bytearray(signature)
    tampered[-1] ^= 1
    assert refusal(judged(signature=bytes(tampered))) == "QuoteSignatureInvalid"


def refusal(judged: object) -> str:
    assert isinstance(judged, EvidenceRefused), judged
    return judged.reason


@pytest.mark.parametrize("hierarchy", [ENDORSEMENT, OWNER])
def test_a_tpm_that_was_not_reset_since_the_boot_before_is_noticed_whatever_hierarchy_its_key_is_of(
    booted_machine: RealMachine, hierarchy: int
) -> None:
    endorsement = booted_machine.load(ek_template("ecc"))
    attestation = booted_machine.tpm.create_primary(ak_template("ecc"), hierarchy)
    issued, state = a_challenge(endorsement.area, attestation.area)
    evidence = booted_machine.answer(issued, endorsement, attestation)
    booted_machine.tpm.flush(endorsement.handle)
    booted_machine.tpm.flush(attestation.handle)
    identity = KnownIdentity(registered=endorsement_key_sha256(endorsement.area))
    count = parse_quote(evidence.quote).clock.reset_count

    def judged(before: int | None) -> EvidenceAccepted | EvidenceRefused:
        return judge_evidence(evidence, identity, state, replace(expected_boot(), reset_count_above=before), NOW)

    unasked = judged(None)
    assert isinstance(unasked, EvidenceAccepted)
    assert unasked.tpm_counts_are_true == (hierarchy == ENDORSEMENT)
    assert refusal(judged(count)) == "TpmNotReset"
    later = judged(count - 1)
    if hierarchy == ENDORSEMENT:
        assert isinstance(later, EvidenceAccepted)
    else:
        # The number that it shows is higher by luck alone.
        assert refusal(later) == "TpmNotReset"


def test_what_is_measured_after_the_log_was_read_is_noticed(other_machine: RealMachine) -> None:
    with loaded(other_machine, ek_template("ecc"), ak_template("ecc")) as (endorsement, attestation):
        issued, state = a_challenge(endorsement.area, attestation.area)
        other_machine.tpm.extend(9, bytes(31) + b"\1")
        evidence = other_machine.answer(issued, endorsement, attestation)
    identity = KnownIdentity(registered=endorsement_key_sha256(endorsement.area))
    judged = judge_evidence(evidence, identity, state, expected_boot(), NOW)
    assert isinstance(judged, EvidenceRefused)
    assert judged.reason == "EventLogMismatch"
    assert judged.message.startswith("PCR 9: the event log leads to sha256:000000000000…, the TPM says sha256:")
