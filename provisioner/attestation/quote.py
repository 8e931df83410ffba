"""Whether a quote is fresh, signed by the attestation key, and over the PCR values that were sent with it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from provisioner.attestation.outcome import EvidenceRefused, Reason
from provisioner.attestation.tpm.algorithms import SHA256_BYTES, Algorithm, name_of
from provisioner.attestation.tpm.attest import Quote, parse_quote
from provisioner.attestation.tpm.public import PublicArea
from provisioner.attestation.tpm.wire import MalformedTpmData, StructureReader, uint16, uint32

# TPMT_SIGNATURE: RSASSA and ECDSA, both with SHA-256; no other is believed.

LARGEST_SIGNATURE_BYTES: Final = 600
_MOST_RSA_BYTES: Final = 512
_MOST_COORDINATE_BYTES: Final = 66


def verify_signature(public: PublicArea, signed: bytes, signature: bytes) -> bool:
    """Whether `signature`, a whole TPMT_SIGNATURE, is the key's over the SHA-256 of `signed`.

    Raises: MalformedTpmData if it is no such structure, of another algorithm, or the public area holds no key.
    """
    if len(signature) > LARGEST_SIGNATURE_BYTES:
        raise MalformedTpmData(
            f"the signature has {len(signature)} bytes, at most {LARGEST_SIGNATURE_BYTES} are expected"
        )
    reader = StructureReader(signature, "the signature")
    algorithm, digest = reader.uint16(), reader.uint16()
    if algorithm not in (Algorithm.RSASSA, Algorithm.ECDSA) or digest != Algorithm.SHA256:
        raise MalformedTpmData(
            f"the signature is {name_of(algorithm)} with {name_of(digest)}, expected RSASSA or ECDSA with SHA256"
        )
    key = public.public_key
    try:
        if algorithm == Algorithm.RSASSA:
            value = reader.sized(_MOST_RSA_BYTES)
            reader.end()
            if not isinstance(key, rsa.RSAPublicKey):
                return False
            key.verify(value, signed, padding.PKCS1v15(), hashes.SHA256())
            return True
        r, s = reader.sized(_MOST_COORDINATE_BYTES), reader.sized(_MOST_COORDINATE_BYTES)
        reader.end()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return False
        encoded = encode_dss_signature(int.from_bytes(r, "big"), int.from_bytes(s, "big"))
        key.verify(encoded, signed, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


_ENDORSEMENT_HIERARCHY: Final = 0x4000000B


def verify_quote(
    attestation: PublicArea,
    quote: bytes,
    signature: bytes,
    *,
    nonce: bytes,
    pcrs: Sequence[int],
    values: Mapping[int, bytes],
) -> Quote | EvidenceRefused:
    """The quote, if `attestation` signed it over `nonce` and exactly `pcrs` of the SHA-256 bank with exactly `values`.

    attestation: a key that check_attestation_key has found right. quote: TPMS_ATTEST. signature: TPMT_SIGNATURE.
    """
    try:
        parsed = parse_quote(quote)
        signed = verify_signature(attestation, quote, signature)
    except MalformedTpmData as error:
        return EvidenceRefused(Reason.EVIDENCE_MALFORMED, str(error))
    if not signed:
        return EvidenceRefused(
            Reason.QUOTE_SIGNATURE_INVALID, "the quote's signature is not the offered attestation key's"
        )
    if not hmac.compare_digest(parsed.extra_data, nonce):
        return EvidenceRefused(
            Reason.QUOTE_NONCE_MISMATCH, "the quote was made for another nonce than this challenge's; quote anew"
        )
    wanted = ((int(Algorithm.SHA256), frozenset(pcrs)),)
    if parsed.selection != wanted:
        return EvidenceRefused(
            Reason.QUOTE_SELECTION_MISMATCH,
            f"the quote is over {_words(parsed.selection)}, expected {_words(wanted)}",
        )
    if values.keys() != wanted[0][1] or any(len(value) != SHA256_BYTES for value in values.values()):
        return EvidenceRefused(
            Reason.EVIDENCE_MALFORMED, f"the PCR values sent are not those of {_words(wanted)}, of 32 bytes each"
        )
    digest = hashlib.sha256(b"".join(values[pcr] for pcr in sorted(values))).digest()
    if not hmac.compare_digest(digest, parsed.pcr_digest):
        return EvidenceRefused(
            Reason.QUOTE_DIGEST_MISMATCH, "the PCR values sent are not those that the TPM signed; read them anew"
        )
    return parsed


def counts_true_resets(quote: Quote, endorsement: PublicArea, attestation: PublicArea) -> bool:
    """Whether the quote's reset and restart counts are the TPM's own numbers.

    They are if the key is in the endorsement hierarchy, as a primary key or a child of `endorsement`: for a key of any
    other hierarchy the TPM hides them behind a number of that key (Part 1, section 36.7), and what looks like a later
    boot may be none. By the key's qualified name, which the TPM signs.
    """
    hierarchy = uint32(_ENDORSEMENT_HIERARCHY)
    names = (_qualified(hierarchy, attestation), _qualified(_qualified(hierarchy, endorsement), attestation))
    return quote.qualified_signer in names


def _qualified(parent: bytes, key: PublicArea) -> bytes:
    return uint16(Algorithm.SHA256) + hashlib.sha256(parent + key.name()).digest()


def _words(selection: Sequence[tuple[int, frozenset[int]]]) -> str:
    """Such as `PCRs 0, 1, 7 of SHA256`."""
    banks = (f"PCRs {', '.join(map(str, sorted(pcrs))) or 'none'} of {name_of(bank)}" for bank, pcrs in selection)
    return " and ".join(banks) or "no PCR"
