"""Whether a machine has proved who it is and what it booted: all checks, in their order.

Two questions at two times. `judge_keys`, before a challenge is issued: is this the server's TPM, and are its keys fit?
`judge_evidence`, of the answer: did that TPM open the credential, and did it boot what it should?
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from cryptography import x509

from provisioner.api.machinery.values import Sha256Digest
from provisioner.attestation.boot import ExpectedBoot, judge_boot
from provisioner.attestation.challenge import QUOTED_PCRS, ChallengeState, activation_proof, public_area_sha256
from provisioner.attestation.endorsement import NotVouched, check_certificates, endorsement_key_sha256
from provisioner.attestation.event_log.compare import short
from provisioner.attestation.event_log.parse import EventLog, parse_event_log
from provisioner.attestation.event_log.replay import extend, replay
from provisioner.attestation.keys import check_attestation_key, check_endorsement_key
from provisioner.attestation.outcome import EvidenceRefused, Reason
from provisioner.attestation.quote import counts_true_resets, verify_quote
from provisioner.attestation.tpm.attest import Quote
from provisioner.attestation.tpm.public import PublicArea, parse_public
from provisioner.attestation.tpm.wire import MalformedTpmData


@dataclass(frozen=True)
class OfferedKeys:
    """The keys of a request. certificates: of the endorsement key, DER."""

    endorsement: PublicArea
    attestation: PublicArea
    certificates: tuple[bytes, ...] = ()


class ChainPolicy(StrEnum):
    """What an endorsement certificate counts for.

    IGNORED: nothing. REQUIRED: a registered key must have one, too. SUFFICES: a key that is not registered is taken if
    it has one; that proves a vendor's TPM, and not which server's, so let it do no more than pin the key once.
    """

    IGNORED = "Ignored"
    REQUIRED = "Required"
    SUFFICES = "Suffices"


@dataclass(frozen=True, kw_only=True)
class KnownIdentity:
    """What is known of the server's TPM. registered: digest of its endorsement key, see endorsement_key_sha256."""

    registered: Sha256Digest | None
    authorities: tuple[x509.Certificate, ...] = ()
    chain: ChainPolicy = ChainPolicy.IGNORED


@dataclass(frozen=True, kw_only=True)
class KeysAccepted:
    """The keys may be challenged. authority: subject of the vendor's CA that vouches for the key, where one was asked
    for."""

    endorsement_key_sha256: Sha256Digest
    authority: str | None = None


@dataclass(frozen=True)
class Evidence:
    """The answer to a challenge. quote: TPMS_ATTEST. signature: TPMT_SIGNATURE. pcr_values: 32 bytes each."""

    keys: OfferedKeys
    activation: bytes
    quote: bytes
    signature: bytes
    pcr_values: Mapping[int, bytes]
    event_log: bytes


@dataclass(frozen=True, kw_only=True)
class EvidenceAccepted:
    """The record of what was proved. firmware: name and digest of the profile that fits. tpm_reset_count,
    tpm_restart_count: as the quote has them; true only with tpm_counts_are_true, see counts_true_resets."""

    keys: KeysAccepted
    firmware: str
    firmware_digest: Sha256Digest
    tpm_reset_count: int
    tpm_restart_count: int
    tpm_counts_are_true: bool


@dataclass(frozen=True)
class ConfirmedQuote:
    """A quote that holds, of the keys that may be the server's. counts_are_true: see counts_true_resets."""

    keys: KeysAccepted
    quote: Quote
    counts_are_true: bool


@dataclass(frozen=True)
class ConfirmedLog(ConfirmedQuote):
    """And the log that it confirms: the log's digests are the TPM's word, all else is hearsay."""

    log: EventLog


def parse_keys(endorsement: bytes, attestation: bytes, certificates: Sequence[bytes]) -> OfferedKeys | EvidenceRefused:
    """The keys as a machine sends them: two TPMT_PUBLIC, and certificates in DER, which are not read yet."""
    try:
        return OfferedKeys(parse_public(endorsement), parse_public(attestation), tuple(certificates))
    except MalformedTpmData as error:
        return EvidenceRefused(Reason.EVIDENCE_MALFORMED, str(error))


def judge_keys(keys: OfferedKeys, identity: KnownIdentity, now: datetime) -> KeysAccepted | EvidenceRefused:
    """Whether these may be the server's keys; not yet that the machine has them. now: with a time zone."""
    if why := check_endorsement_key(keys.endorsement):
        return EvidenceRefused(Reason.ENDORSEMENT_KEY_UNFIT, why)
    digest = endorsement_key_sha256(keys.endorsement)
    if identity.registered is not None and not hmac.compare_digest(digest, identity.registered):
        return EvidenceRefused(
            Reason.ENDORSEMENT_KEY_MISMATCH,
            f"the endorsement key is {digest}, registered is {identity.registered}: another TPM or another machine",
        )
    if identity.registered is None and identity.chain is not ChainPolicy.SUFFICES:
        return EvidenceRefused(
            Reason.ENDORSEMENT_KEY_UNKNOWN,
            f"no endorsement key is registered; the machine shows {digest}, which an administrator may approve",
        )
    authority = None
    if identity.chain is ChainPolicy.REQUIRED or identity.registered is None:
        vouched = check_certificates(keys.endorsement, keys.certificates, identity.authorities, now)
        if isinstance(vouched, NotVouched):
            return EvidenceRefused(Reason.ENDORSEMENT_CERTIFICATE_REFUSED, vouched.why)
        authority = vouched.authority
    if why := check_attestation_key(keys.attestation):
        return EvidenceRefused(Reason.ATTESTATION_KEY_UNFIT, why)
    return KeysAccepted(endorsement_key_sha256=digest, authority=authority)


def judge_evidence(
    evidence: Evidence, identity: KnownIdentity, challenge: ChallengeState, expected: ExpectedBoot, now: datetime
) -> EvidenceAccepted | EvidenceRefused:
    """Whether the machine has proved it all. challenge: as `open_` found it. Has no effects."""
    confirmed = confirm_log(evidence, identity, challenge, now, later=expected.later)
    if isinstance(confirmed, EvidenceRefused):
        return confirmed
    clock, is_true = confirmed.quote.clock, confirmed.counts_are_true
    least = expected.reset_count_above
    if least is not None and not (is_true and clock.reset_count > least):
        shown = f"is {clock.reset_count}" if is_true else "is hidden: the attestation key is of another hierarchy"
        return EvidenceRefused(
            Reason.TPM_NOT_RESET,
            f"the TPM's reset count {shown}, expected more than {least}, which the boot before had; this is that boot, "
            f"or the TPM was cleared",
        )
    firmware = judge_boot(confirmed.log, expected)
    if isinstance(firmware, EvidenceRefused):
        return firmware
    return EvidenceAccepted(
        keys=confirmed.keys,
        firmware=firmware.name,
        firmware_digest=firmware.digest,
        tpm_reset_count=clock.reset_count,
        tpm_restart_count=clock.restart_count,
        tpm_counts_are_true=is_true,
    )


def confirm_log(
    evidence: Evidence,
    identity: KnownIdentity,
    challenge: ChallengeState,
    now: datetime,
    *,
    later: Mapping[int, Sequence[bytes]] | None = None,
) -> ConfirmedLog | EvidenceRefused:
    """All that can be said before it is known what should have booted: the keys are the server's, its TPM opened the
    credential and signed this nonce, and the event log is what went into its PCRs.

    later: digests that the system extends after the log, by PCR.
    """
    confirmed = confirm_quote(evidence, identity, challenge, now)
    if isinstance(confirmed, EvidenceRefused):
        return confirmed
    if not evidence.event_log:
        return EvidenceRefused(
            Reason.EVENT_LOG_MISSING, "the machine gives no event log of its firmware, so nothing says what it booted"
        )
    try:
        log = parse_event_log(evidence.event_log)
    except MalformedTpmData as error:
        return EvidenceRefused(Reason.EVIDENCE_MALFORMED, str(error))
    for pcr, value in replay(log, QUOTED_PCRS).items():
        value = extend(value, *(later or {}).get(pcr, ()))
        if value != evidence.pcr_values[pcr]:
            return EvidenceRefused(
                Reason.EVENT_LOG_MISMATCH,
                f"PCR {pcr}: the event log leads to {short(value)}, the TPM says {short(evidence.pcr_values[pcr])}; "
                f"something was measured that is not in the log",
            )
    return ConfirmedLog(confirmed.keys, confirmed.quote, confirmed.counts_are_true, log)


def confirm_quote(
    evidence: Evidence, identity: KnownIdentity, challenge: ChallengeState, now: datetime
) -> ConfirmedQuote | EvidenceRefused:
    """As confirm_log, but for the log, which says nothing of what was started by kexec."""
    accepted = judge_keys(evidence.keys, identity, now)
    if isinstance(accepted, EvidenceRefused):
        return accepted
    for_keys = (challenge.challenged.endorsement_key_sha256, challenge.challenged.attestation_key_sha256)
    if for_keys != tuple(map(public_area_sha256, (evidence.keys.endorsement, evidence.keys.attestation))):
        return EvidenceRefused(Reason.CHALLENGE_MISMATCH, "the challenge was issued for other keys; ask for a new one")
    if not hmac.compare_digest(evidence.activation, activation_proof(challenge.secret, challenge.nonce)):
        return EvidenceRefused(
            Reason.ACTIVATION_FAILED,
            "the machine did not show what the credential holds: its TPM has not both the endorsement and the "
            "attestation key",
        )
    quote = verify_quote(
        evidence.keys.attestation,
        evidence.quote,
        evidence.signature,
        nonce=challenge.nonce,
        pcrs=QUOTED_PCRS,
        values=evidence.pcr_values,
    )
    if isinstance(quote, EvidenceRefused):
        return quote
    is_true = counts_true_resets(quote, evidence.keys.endorsement, evidence.keys.attestation)
    return ConfirmedQuote(accepted, quote, is_true)
