"""Who vouches for an endorsement key: a registration that names its digest, or its vendor's certificate."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from provisioner.api.values import Sha256Digest
from provisioner.attestation.tpm.public import PublicArea

MOST_CERTIFICATES: Final = 4
LARGEST_CERTIFICATE_BYTES: Final = 4096
MOST_AUTHORITIES: Final = 64


@dataclass(frozen=True)
class Vouched:
    """A configured authority vouches for the key. authority: its subject. certificate_sha256: of the EK certificate."""

    authority: str
    certificate_sha256: Sha256Digest


@dataclass(frozen=True)
class NotVouched:
    """No chain leads from the key to a configured authority; why, in words."""

    why: str


def endorsement_key_sha256(public: PublicArea) -> Sha256Digest:
    """By which a server's endorsement key is registered: the SHA-256 of its SubjectPublicKeyInfo in DER.

    The same as `tpm2_readpublic -f der -o ek.der; sha256sum ek.der`, or of the public key in the vendor's certificate.
    Raises: MalformedTpmData if the public area holds no key.
    """
    spki = public.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return Sha256Digest(f"sha256:{hashlib.sha256(spki).hexdigest()}")


def load_authorities(pem: bytes) -> tuple[x509.Certificate, ...]:
    """The certificates of vendors' CAs from a PEM file: roots, and intermediates that machines do not bring.

    Raises: Refused if one cannot be read, is no CA's, or there are none or more than MOST_AUTHORITIES.
    """
    raise NotImplementedError


def check_certificates(
    public: PublicArea, certificates: Sequence[bytes], authorities: Sequence[x509.Certificate], now: datetime
) -> Vouched | NotVouched:
    """Whether `certificates` (DER; the EK's own first, then intermediates in any order; at most MOST_CERTIFICATES) lead
    from the endorsement key to one of `authorities`.

    now: with a time zone. Checked: the certificate's key is the endorsement key; each one's validity, signature, issuer,
    basicConstraints with path length, keyUsage; the EK's own is no CA's and has the EKU tcg-kp-EKCertificate if it has any.
    No critical extension is unknown, but the TPM's SubjectAlternativeName. There are no revocation lists.
    """
    raise NotImplementedError
