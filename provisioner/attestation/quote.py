"""Whether a quote is fresh, signed by the attestation key, and over the PCR values that were sent with it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Final

from provisioner.attestation.outcome import EvidenceRefused, Reason
from provisioner.attestation.tpm.algorithms import SHA256_BYTES, Algorithm, name_of
from provisioner.attestation.tpm.attest import Quote, parse_quote
from provisioner.attestation.tpm.public import PublicArea
from provisioner.attestation.tpm.signature import verify_signature
from provisioner.attestation.tpm.wire import MalformedTpmData, uint16, uint32

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
    """Whether the quote's reset and restart counts, and its firmware version, are the TPM's own numbers.

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
