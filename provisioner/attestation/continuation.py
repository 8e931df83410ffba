"""Whether a system that was started by kexec continues a boot that was proved. Pure.

Firmware measures nothing anew then: PCRs 0 to 9 and 12 tell of the boot before, and must tell the same. PCR 14 alone
goes on: the old system's agent extends it by the digest of what it starts, and nothing but a reset of the TPM takes
that back. What the digest stands for is the old system's word (`provisioner/node/tpm/hand_over.py`): that word counts
because that system was proved, and as much as it is to be believed since.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.values import Sha256Digest
from provisioner.attestation.challenge import public_area_sha256
from provisioner.attestation.event_log.compare import short
from provisioner.attestation.event_log.replay import extend
from provisioner.attestation.judge import ConfirmedQuote, Evidence
from provisioner.attestation.outcome import EvidenceRefused, Reason

HAND_OVER_PCR: Final = 14


@dataclass(frozen=True, kw_only=True)
class ProvedBoot:
    """What is on record of a proof. attestation_key_sha256: see public_area_sha256. pcr_digest: SHA-256 over all quoted
    registers, PCR 14 included. hand_over_pcr: PCR 14 then, 32 bytes: zeros after a start by the firmware. reset_count,
    restart_count: the TPM's own numbers, see counts_true_resets."""

    endorsement_key_sha256: Sha256Digest
    attestation_key_sha256: str
    pcr_digest: Sha256Digest
    hand_over_pcr: bytes
    reset_count: int
    restart_count: int


def judge_continuation(
    confirmed: ConfirmedQuote, evidence: Evidence, before: ProvedBoot, hand_overs: Sequence[bytes]
) -> EvidenceRefused | None:
    """None if the quote is of `before`'s machine, not reset since, with exactly `hand_overs` measured into PCR 14.

    confirmed: what confirm_quote made of `evidence`. hand_overs: 32 bytes each, in order; none where the system that
    proved `before` asks once more.
    """
    return _other_tpm(confirmed, evidence, before) or _other_registers(evidence, before, hand_overs)


def pcr_digest(pcr_values: Mapping[int, bytes]) -> Sha256Digest:
    """SHA-256 over registers, from the lowest to the highest."""
    values = b"".join(value for _, value in sorted(pcr_values.items()))
    return Sha256Digest("sha256:" + hashlib.sha256(values).hexdigest())


def _other_tpm(confirmed: ConfirmedQuote, evidence: Evidence, before: ProvedBoot) -> EvidenceRefused | None:
    endorsement = confirmed.keys.endorsement_key_sha256
    if not hmac.compare_digest(endorsement, before.endorsement_key_sha256):
        return EvidenceRefused(
            Reason.ENDORSEMENT_KEY_MISMATCH,
            f"the endorsement key is {endorsement}, that of the boot before, which is said to have started this system "
            f"by kexec, was {before.endorsement_key_sha256}: another machine",
        )
    attestation = public_area_sha256(evidence.keys.attestation)
    if not hmac.compare_digest(attestation, before.attestation_key_sha256):
        return EvidenceRefused(
            Reason.ATTESTATION_KEY_MISMATCH,
            f"the attestation key is {attestation}, that of the boot before was {before.attestation_key_sha256}; the "
            "agent makes the same one at each boot, so have the server booted by its BMC",
        )
    if _was_reset(confirmed, before):
        clock = confirmed.quote.clock
        return EvidenceRefused(
            Reason.TPM_WAS_RESET,
            f"the TPM counts {clock.reset_count} resets and {clock.restart_count} restarts, at the proof of the boot "
            f"before it counted {before.reset_count} and {before.restart_count}: what asks was not started by kexec, "
            "or hides the count",
        )
    return None


def _was_reset(confirmed: ConfirmedQuote, before: ProvedBoot) -> bool:
    """Also if it hides whether it was."""
    clock = confirmed.quote.clock
    counts = (clock.reset_count, clock.restart_count)
    return not confirmed.counts_are_true or counts != (before.reset_count, before.restart_count)


def _other_registers(evidence: Evidence, before: ProvedBoot, hand_overs: Sequence[bytes]) -> EvidenceRefused | None:
    unmoved = pcr_digest({**evidence.pcr_values, HAND_OVER_PCR: before.hand_over_pcr})
    if not hmac.compare_digest(unmoved, before.pcr_digest):
        return EvidenceRefused(
            Reason.REGISTERS_CHANGED,
            f"the digest over PCRs 0 to 9 and 12 and the former PCR 14 is {unmoved}, that of the boot before was "
            f"{before.pcr_digest}: a kexec changes none of them",
        )
    expected, shown = extend(before.hand_over_pcr, *hand_overs), evidence.pcr_values[HAND_OVER_PCR]
    if not hmac.compare_digest(shown, expected):
        measured = "nothing was measured" if shown == before.hand_over_pcr else "something else was measured"
        return EvidenceRefused(
            Reason.HAND_OVER_MISMATCH,
            f"PCR {HAND_OVER_PCR} is {short(shown)}, expected {short(expected)}, by what the boot before reported: "
            f"{measured} before this system was started; have the server booted by its BMC",
        )
    return None
