"""Who vouches for an endorsement key: a registration that names its digest, or its vendor's certificate."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import Sha256Digest
from provisioner.attestation.tpm.public import PublicArea
from provisioner.attestation.vendor_certificate import LOOKED_AT, UNREADABLE, VendorCertificate, read_certificate

MOST_CERTIFICATES: Final = 4
LARGEST_CERTIFICATE_BYTES: Final = 4096
MOST_AUTHORITIES: Final = 512
_EK_CERTIFICATE: Final = x509.ObjectIdentifier("2.23.133.8.1")
_HASHES: Final = ("sha256", "sha384", "sha512")
_LEAST_RSA_BITS: Final = 2048
_PEM: Final = re.compile(rb"-----BEGIN (?:X509 )?CERTIFICATE-----(.*?)-----END (?:X509 )?CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class Vouched:
    """A configured authority vouches for the key. authority: its subject."""

    authority: str


@dataclass(frozen=True)
class NotVouched:
    """No chain leads from the key to a configured authority; why, in words."""

    why: str


def endorsement_key_sha256(public: PublicArea) -> Sha256Digest:
    """By which a server's endorsement key is registered: the SHA-256 of its SubjectPublicKeyInfo in DER.

    The same as `tpm2_readpublic -f der -o ek.der; sha256sum ek.der`, or of the public key in the vendor's certificate.
    Raises: MalformedTpmData if the public area holds no key.
    """
    spki = public.public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Sha256Digest(f"sha256:{hashlib.sha256(spki).hexdigest()}")


def load_authorities(pem: bytes, *, left_out: Callable[[str], None] = lambda _: None) -> tuple[x509.Certificate, ...]:
    """The certificates of vendors' CAs from a PEM file: roots, and intermediates that machines do not bring.

    One that cannot be read is left out; `left_out` is given which, and why. Raises: Refused if one is no CA's, or none
    can be read, or there are more than MOST_AUTHORITIES.
    """
    hint = "give the CA certificates of the TPMs' vendors, in PEM, one after the other"
    blocks = list(_PEM.finditer(pem))
    if len(blocks) > MOST_AUTHORITIES:
        raise Refused(f"{len(blocks)} authorities are more than {MOST_AUTHORITIES}", hint=hint)
    authorities: list[x509.Certificate] = []
    why_not: list[str] = []
    for number, block in enumerate(blocks, 1):
        line = pem.count(b"\n", 0, block.start()) + 1
        which = f"certificate {number} of {len(blocks)} (line {line})"
        try:
            authority = read_certificate(base64.b64decode(block[1])).read
            if why := _why_no_authority(authority):
                raise Refused(f"{which}, {_subject(authority)}, {why}", hint=hint)
        except UNREADABLE as error:
            why_not.append(f"{which} cannot be read: {str(error)[:200]}")
            left_out(why_not[-1])
        else:
            authorities.append(authority)
    if not authorities:
        raise Refused(f"the authorities cannot be read: {'; '.join(why_not[:3]) or 'there is none'}", hint=hint)
    return tuple(authorities)


def check_certificates(
    public: PublicArea, certificates: Sequence[bytes], authorities: Sequence[x509.Certificate], now: datetime
) -> Vouched | NotVouched:
    """Whether `certificates` (DER; the EK's own first, then intermediates in any order; at most MOST_CERTIFICATES)
    lead from the endorsement key to one of `authorities`.

    now: with a time zone. Checked: the certificate's key is the endorsement key; of each, authority included, validity,
    signature (no SHA-1), issuer, basicConstraints with path length, keyUsage; the EK's own is no CA's, and has the EKU
    tcg-kp-EKCertificate if it has any. A critical extension that is not looked at is refused, but for the TPM's
    SubjectAlternativeName. There is no revocation.
    """
    if not 1 <= len(certificates) <= MOST_CERTIFICATES:
        return NotVouched(
            f"{len(certificates)} certificates came with the endorsement key, expected 1 to {MOST_CERTIFICATES}"
        )
    if any(len(each) > LARGEST_CERTIFICATE_BYTES for each in certificates):
        return NotVouched(f"a certificate has more than {LARGEST_CERTIFICATE_BYTES} bytes")
    try:
        leaf = read_certificate(certificates[0])
        if why := _why_not_of(public, leaf.read) or _why_unusable(leaf.read, now):
            return NotVouched(f"the endorsement certificate {why}")
        return _climb(leaf, [*_readable(certificates[1:])], authorities, now)
    except UNREADABLE as error:
        return NotVouched(f"the certificate of the endorsement key cannot be read: {str(error)[:200]}")


def _readable(certificates: Sequence[bytes]) -> Iterator[VendorCertificate]:
    """An intermediate that cannot be read is as one that was not sent."""
    for each in certificates:
        with contextlib.suppress(*UNREADABLE):
            yield read_certificate(each)


def _climb(
    leaf: VendorCertificate,
    others: Sequence[VendorCertificate],
    authorities: Sequence[x509.Certificate],
    now: datetime,
) -> Vouched | NotVouched:
    """Up the chain, an issuer at a time; the words for why not are of the last issuer that was looked at."""
    current, below, unused = leaf, 0, list(others)
    while True:
        why: str | None = None
        for authority in authorities:
            if authority.subject == current.read.issuer:
                fault = _why_no_issuer(authority, current, below, now)
                if fault is None:
                    return Vouched(_subject(authority))
                why = f"authority {_subject(authority)} {fault}"
        for other in unused:
            if other.read.subject == current.read.issuer:
                fault = _why_no_issuer(other.read, current, below, now)
                if fault is None:
                    break
                why = f"intermediate {_subject(other.read)} {fault}"
        else:
            unknown = f"{_words(current.read.issuer)}, issuer of {_subject(current.read)}, is no configured authority"
            return NotVouched(why or f"{unknown}, and was not sent")
        unused.remove(other)
        current, below = other, below + 1


def _why_not_of(public: PublicArea, leaf: x509.Certificate) -> str | None:
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if leaf.public_key().public_bytes(*form) != public.public_key.public_bytes(*form):
        return "is for another key than the endorsement key"
    for extension in leaf.extensions:
        value = extension.value
        if isinstance(value, x509.BasicConstraints) and value.ca:
            return "is a CA's"
        if isinstance(value, x509.KeyUsage) and not (value.key_encipherment or value.key_agreement):
            return "is for a key that may not be used for encryption (keyUsage)"
        if isinstance(value, x509.ExtendedKeyUsage) and _EK_CERTIFICATE not in value:
            return "is for another use than tcg-kp-EKCertificate (extendedKeyUsage)"
    return None


def _why_no_issuer(issuer: x509.Certificate, issued: VendorCertificate, below: int, now: datetime) -> str | None:
    """below: how many intermediates lie between issuer and the endorsement certificate."""
    if why := _why_no_authority(issuer) or _why_unusable(issuer, now):
        return why
    limit = issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length
    if limit is not None and below > limit:
        return f"allows {limit} intermediates below it, there are {below}"
    key = issuer.public_key()
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < _LEAST_RSA_BITS:
        return f"has an RSA key of {key.key_size} bits, expected at least {_LEAST_RSA_BITS}"
    return None if issued.is_signed_by(issuer) else f"has not signed {_subject(issued.read)}"


def _why_no_authority(certificate: x509.Certificate) -> str | None:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return "does not say that it is a CA's (basicConstraints, keyUsage)"
    return None if constraints.ca and usage.key_cert_sign else "is no CA's, or may not sign certificates"


def _why_unusable(certificate: x509.Certificate, now: datetime) -> str | None:
    if now < certificate.not_valid_before_utc:
        return f"is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}"
    if now > certificate.not_valid_after_utc:
        return f"was valid until {certificate.not_valid_after_utc:%Y-%m-%d}"
    digest = certificate.signature_hash_algorithm
    if digest is None or digest.name not in _HASHES:
        return f"is signed by {digest.name if digest else 'no hash that is known'}, expected {', '.join(_HASHES)}"
    for extension in certificate.extensions:
        if extension.critical and not isinstance(extension.value, LOOKED_AT):
            return f"has the critical extension {extension.oid.dotted_string}, which is not known here"
    return None


def _subject(certificate: x509.Certificate) -> str:
    return _words(certificate.subject)


def _words(name: x509.Name) -> str:
    """At most 120 printable characters: the name may be a stranger's."""
    text = "".join(each if each.isprintable() else "?" for each in name.rfc4514_string())
    return f"'{text[:120]}'"
