"""What comes of evidence that does not hold: a reason for machines, and words for people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from provisioner.attestation.measurements import FirmwareMeasurements


class Reason(StrEnum):
    """In the order in which it is looked at. Each is a condition's reason and a metric's label."""

    EVIDENCE_MALFORMED = "EvidenceMalformed"
    ENDORSEMENT_KEY_UNFIT = "EndorsementKeyUnfit"
    ENDORSEMENT_KEY_UNKNOWN = "EndorsementKeyUnknown"
    ENDORSEMENT_KEY_MISMATCH = "EndorsementKeyMismatch"
    ENDORSEMENT_CERTIFICATE_REFUSED = "EndorsementCertificateRefused"
    ATTESTATION_KEY_UNFIT = "AttestationKeyUnfit"
    CHALLENGE_FORGED = "ChallengeForged"
    CHALLENGE_EXPIRED = "ChallengeExpired"
    CHALLENGE_MISMATCH = "ChallengeMismatch"
    ACTIVATION_FAILED = "ActivationFailed"
    QUOTE_SIGNATURE_INVALID = "QuoteSignatureInvalid"
    QUOTE_NONCE_MISMATCH = "QuoteNonceMismatch"
    QUOTE_SELECTION_MISMATCH = "QuoteSelectionMismatch"
    QUOTE_DIGEST_MISMATCH = "QuoteDigestMismatch"
    TPM_NOT_RESET = "TpmNotReset"
    ATTESTATION_KEY_MISMATCH = "AttestationKeyMismatch"
    TPM_WAS_RESET = "TpmWasReset"
    REGISTERS_CHANGED = "RegistersChanged"
    HAND_OVER_UNREPORTED = "HandOverUnreported"
    HAND_OVER_MISMATCH = "HandOverMismatch"
    EVENT_LOG_MISSING = "EventLogMissing"
    EVENT_LOG_MISMATCH = "EventLogMismatch"
    KERNEL_MISMATCH = "KernelMismatch"
    COMMAND_LINE_MISMATCH = "CommandLineMismatch"
    INITRD_MISMATCH = "InitrdMismatch"
    MEASUREMENT_UNEXPECTED = "MeasurementUnexpected"
    FIRMWARE_NOT_APPROVED = "FirmwareNotApproved"
    FIRMWARE_MISMATCH = "FirmwareMismatch"
    BOOT_PROGRAM_MISMATCH = "BootProgramMismatch"


@dataclass(frozen=True)
class EvidenceRefused:
    """The evidence does not hold. message: object, observed, expected; no secret is in it, and it is bounded.

    learned: where all holds but that no approved firmware fits: what this machine's measures, named `learned`, which an
    administrator may approve under another name.
    """

    reason: Reason
    message: str
    learned: FirmwareMeasurements | None = None
