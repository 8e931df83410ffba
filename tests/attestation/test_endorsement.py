"""Chains of endorsement certificates: what a vendor's CA may vouch for, and every way in which one may not."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from provisioner.api.machinery.errors import Refused
from provisioner.attestation.endorsement import (
    LARGEST_CERTIFICATE_BYTES,
    MOST_AUTHORITIES,
    NotVouched,
    Vouched,
    check_certificates,
    endorsement_key_sha256,
    load_authorities,
)
from tests.attestation.fake_tpm import FakeTpm

NOW = datetime(2026, 11, 25, tzinfo=UTC)
TPM, OTHER = FakeTpm("rsa"), FakeTpm("rsa")
EK_CERTIFICATE = x509.ObjectIdentifier("2.23.133.8.1")
VENDORS_NAME = x509.SubjectAlternativeName(
    [x509.DirectoryName(x509.Name([x509.NameAttribute(x509.ObjectIdentifier("2.23.133.2.1"), "id:4D41444E")]))]
)


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)] if text else [])


def usage(*allowed: str) -> x509.KeyUsage:
    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{each: each in allowed for each in every})


@dataclass(frozen=True)
class Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(Encoding.DER)


def certificate(
    subject: str,
    key: Any,
    issuer: Authority | None,
    extensions: Sequence[tuple[x509.ExtensionType, bool]],
    *,
    signer: Any = None,
    days: tuple[int, int] = (-10, 3650),
    hash_: Any = None,
) -> x509.Certificate:
    builder = x509.CertificateBuilder().subject_name(name(subject)).public_key(key)
    builder = builder.issuer_name(issuer.certificate.subject if issuer else name(subject))
    builder = builder.not_valid_before(NOW + timedelta(days[0])).not_valid_after(NOW + timedelta(days[1]))
    builder = builder.serial_number(x509.random_serial_number())
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(signer or (issuer.key if issuer else None), hash_ or hashes.SHA256())


def authority(subject: str, issuer: Authority | None = None, *, path: int | None = None, **more: Any) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    extensions = more.pop("extensions", None) or [
        (x509.BasicConstraints(ca=True, path_length=path), True),
        (usage("key_cert_sign"), True),
    ]
    made = certificate(subject, key.public_key(), issuer, extensions, signer=issuer.key if issuer else key, **more)
    return Authority(made, key)


AS_IT_SHOULD: list[tuple[x509.ExtensionType, bool]] = [
    (x509.BasicConstraints(ca=False, path_length=None), True),
    (usage("key_encipherment"), True),
    (x509.ExtendedKeyUsage([EK_CERTIFICATE]), False),
    (VENDORS_NAME, True),
]
ROOT = authority("Made-up TPM Root CA")
INTERMEDIATE = authority("Made-up TPM CA 1", ROOT, path=0)


def leaf(issuer: Authority = INTERMEDIATE, tpm: FakeTpm = TPM, **more: Any) -> bytes:
    extensions = more.pop("extensions", AS_IT_SHOULD)
    made = certificate("", tpm.endorsement_key.public_key(), issuer, extensions, **more)
    return made.public_bytes(Encoding.DER)


def check(*certificates: bytes, authorities: Sequence[Authority] = (ROOT,)) -> Vouched | NotVouched:
    return check_certificates(TPM.endorsement, certificates, [each.certificate for each in authorities], NOW)


def why(judged: Vouched | NotVouched) -> str:
    return judged.why if isinstance(judged, NotVouched) else "vouched"


def test_a_vendors_chain_vouches_for_its_key_with_its_critical_name_and_an_empty_subject() -> None:
    vouched = check(leaf(), INTERMEDIATE.der)
    assert isinstance(vouched, Vouched)
    assert vouched.authority == "'CN=Made-up TPM Root CA'"
    assert isinstance(check(leaf(), authorities=[INTERMEDIATE]), Vouched)
    assert isinstance(check(leaf(ROOT)), Vouched)
    # From NV memory that has more room than the certificate.
    assert isinstance(check(leaf() + b"\xff" * 200, INTERMEDIATE.der + bytes(7)), Vouched)


def test_the_order_of_intermediates_does_not_matter_nor_do_others_of_the_same_name() -> None:
    second = authority("Made-up TPM CA 2", authority("Made-up TPM CA 1b", ROOT))
    middle = authority("middle", ROOT)
    last = authority("last", middle)
    namesake = authority("last", ROOT)
    assert isinstance(check(leaf(last), middle.der, namesake.der, last.der), Vouched)
    assert "is no configured authority" in why(check(leaf(last), second.der, middle.der))


def without(kind: type[x509.ExtensionType], *instead: tuple[x509.ExtensionType, bool]) -> list[Any]:
    return [each for each in AS_IT_SHOULD if not isinstance(each[0], kind)] + list(instead)


CAS: list[tuple[x509.ExtensionType, bool]] = [(x509.BasicConstraints(True, None), True), (usage("key_cert_sign"), True)]
CA_ITSELF = without(x509.BasicConstraints, (x509.BasicConstraints(True, None), True))
TO_SIGN = without(x509.KeyUsage, (usage("digital_signature"), True))
OF_A_SERVER = without(x509.ExtendedKeyUsage, (x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), False))
UNKNOWN = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\5\0")


@pytest.mark.parametrize(
    ("certificates", "words"),
    [
        (lambda: [leaf(tpm=OTHER), INTERMEDIATE.der], "is for another key than the endorsement key"),
        (lambda: [leaf(authority("Stranger's CA"))], "'CN=Stranger's CA', issuer of '', is no configured authority"),
        (lambda: [leaf()], "is no configured authority, and was not sent"),
        (lambda: [leaf(signer=ROOT.key), INTERMEDIATE.der], "has not signed"),
        (lambda: [leaf(authority("Made-up TPM Root CA"))], "has not signed"),
        (lambda: [leaf(days=(-20, -1)), INTERMEDIATE.der], "was valid until 2026-11-24"),
        (lambda: [leaf(days=(1, 20)), INTERMEDIATE.der], "is not valid before 2026-11-26"),
        (lambda: [leaf(extensions=CA_ITSELF), INTERMEDIATE.der], "is a CA's"),
        (lambda: [leaf(extensions=TO_SIGN), INTERMEDIATE.der], "may not be used for encryption"),
        (lambda: [leaf(extensions=OF_A_SERVER), INTERMEDIATE.der], "another use than tcg-kp-EKCertificate"),
        (
            lambda: [leaf(extensions=[*AS_IT_SHOULD, (UNKNOWN, True)]), INTERMEDIATE.der],
            "the critical extension 1.2.3.4",
        ),
        (list, "0 certificates came"),
        (lambda: [leaf()] * 5, "5 certificates came"),
        (lambda: [b"0\x82" + bytes(LARGEST_CERTIFICATE_BYTES)], "has more than 4096 bytes"),
        (lambda: [b"no certificate"], "cannot be read"),
    ],
)
def test_a_certificate_that_does_not_vouch_is_refused_in_words(certificates: Any, words: str) -> None:
    assert words in why(check(*certificates()))


def test_a_certificate_without_the_extensions_that_may_be_missing_vouches() -> None:
    bare = [(VENDORS_NAME, False)]
    assert isinstance(check(leaf(extensions=bare), INTERMEDIATE.der), Vouched)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"extensions": [(x509.BasicConstraints(False, None), True), CAS[1]]}, "is no CA's"),
        ({"extensions": [CAS[0], (usage("crl_sign"), True)]}, "is no CA's"),
        ({"extensions": CAS[:1]}, "does not say that it is a CA's"),
        ({"days": (-20, -1)}, "was valid until"),
    ],
)
def test_who_is_no_authority_issues_nothing(more: Any, words: str) -> None:
    wrong, right = authority("x", ROOT, **more), authority("x", ROOT)
    assert words in why(check(leaf(wrong), wrong.der))
    assert isinstance(check(leaf(right), right.der), Vouched)


def test_the_length_of_a_path_is_kept() -> None:
    below = authority("below", INTERMEDIATE)
    assert "allows 0 intermediates below it, there are 1" in why(check(leaf(below), below.der, INTERMEDIATE.der))


def test_an_endorsement_certificate_issues_none() -> None:
    """Who has one TPM's certificate and a key for it does not vouch for others with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = Authority(certificate("own", key.public_key(), INTERMEDIATE, AS_IT_SHOULD), key)
    assert "is no CA's, or may not sign" in why(check(leaf(own), own.der, INTERMEDIATE.der))


def test_a_hash_or_a_key_that_is_not_strong_enough_vouches_for_nobody() -> None:
    other_hash = leaf(hash_=hashes.SHA3_256())
    assert "is signed by sha3-256, expected sha256" in why(check(other_hash, INTERMEDIATE.der))
    small = rsa.generate_private_key(65537, 1024)  # noqa: S505 - that is the point
    weak: Any = Authority(certificate("weak", small.public_key(), ROOT, CAS), small)  # type: ignore[arg-type]
    assert "has an RSA key of 1024 bits" in why(check(leaf(weak), weak.der))


def test_an_expired_authority_vouches_for_nobody() -> None:
    old = authority("Old Root", days=(-3650, -1))
    assert "was valid until" in why(check(leaf(old), authorities=[old]))


def test_certificates_that_issue_one_another_are_gone_through_once() -> None:
    one, other = authority("one", ROOT), authority("other", ROOT)
    crossed = Authority(certificate("one", one.key.public_key(), other, CAS), one.key)
    back = Authority(certificate("other", other.key.public_key(), one, CAS), other.key)
    assert "is no configured authority" in why(check(leaf(crossed), crossed.der, back.der, authorities=[]))


def pem(*authorities: Authority) -> bytes:
    return b"".join(each.certificate.public_bytes(Encoding.PEM) for each in authorities)


def test_authorities_are_read_from_a_file_of_cas_alone() -> None:
    assert load_authorities(pem(ROOT, INTERMEDIATE)) == (ROOT.certificate, INTERMEDIATE.certificate)
    no_authority = x509.load_der_x509_certificate(leaf())
    for wrong, words in (
        (b"", "cannot be read"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be read"),
        (no_authority.public_bytes(Encoding.PEM), "is no CA's"),
        (pem(ROOT) * (MOST_AUTHORITIES + 1), f"{MOST_AUTHORITIES + 1} authorities are more than {MOST_AUTHORITIES}"),
    ):
        with pytest.raises(Refused, match=words):
            load_authorities(wrong)


def test_the_digest_of_an_endorsement_key_is_that_of_its_public_key_in_der() -> None:
    der = TPM.endorsement_key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert endorsement_key_sha256(TPM.endorsement) == f"sha256:{hashlib.sha256(der).hexdigest()}"
