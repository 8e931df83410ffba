"""Whether a quote is fresh, signed by the attestation key, and over the PCR values that were sent with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from provisioner.attestation.outcome import EvidenceRefused
from provisioner.attestation.tpm.attest import Quote
from provisioner.attestation.tpm.public import PublicArea


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
    raise NotImplementedError
