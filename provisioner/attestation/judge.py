"""Whether a machine has proved who it is and what it booted: all checks, in their order.

Two questions at two times. `judge_keys`, before a challenge is issued: is this the server's TPM, and are its keys fit?
`judge_evidence`, of the answer: did that TPM open the credential, and did it boot what it should?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cryptography import x509

from provisioner.api.values import Sha256Digest
from provisioner.attestation.challenge import ChallengeState
from provisioner.attestation.measurements import FirmwareMeasurements, ImageMeasurements
from provisioner.attestation.outcome import EvidenceRefused
from provisioner.attestation.tpm.public import PublicArea


@dataclass(frozen=True)
class OfferedKeys:
    """The keys of a request. certificates: of the endorsement key, DER."""

    endorsement: PublicArea
    attestation: PublicArea
    certificates: tuple[bytes, ...] = ()


class ChainPolicy(StrEnum):
    """What an endorsement certificate counts for.

    IGNORED: nothing. REQUIRED: a registered key must have one, too. SUFFICES: a key that is not registered is taken if it
    has one; that proves a vendor's TPM, and not which server's, so let it do no more than pin the key once.
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
    """The keys may be challenged. endorsed_by: Registration or Certificate. authority: subject of the vendor's CA that
    vouches for the key, where one was asked for."""

    endorsement_key_sha256: Sha256Digest
    attestation_key_name: str
    endorsed_by: str
    authority: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExpectedBoot:
    """What the server was told to boot. load_options: digest of its command line. firmware: the approved profiles, of
    which one must fit; an unknown firmware is refused. later: digests that the system extends after the log, by PCR.
    """

    image: ImageMeasurements
    load_options: Sha256Digest
    firmware: Sequence[FirmwareMeasurements]
    later: Mapping[int, Sequence[bytes]] = field(default_factory=dict)


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
    """The record of what was proved. firmware: name and digest of the profile that fits. pcr_values: hexadecimal.
    not_judged: PCRs that were quoted and replayed, but compared with nothing. tpm_clock_safe, tpm_reset_count,
    tpm_restart_count, tpm_firmware_version: as the quote has them."""

    keys: KeysAccepted
    challenge_id: bytes
    image: ImageMeasurements
    load_options: Sha256Digest
    firmware: str
    firmware_digest: Sha256Digest
    pcr_values: Mapping[int, str]
    not_judged: tuple[int, ...]
    tpm_reset_count: int
    tpm_restart_count: int
    tpm_clock_safe: bool
    tpm_firmware_version: int


def parse_keys(endorsement: bytes, attestation: bytes, certificates: Sequence[bytes]) -> OfferedKeys | EvidenceRefused:
    """The keys as a machine sends them: two TPMT_PUBLIC, and certificates in DER."""
    raise NotImplementedError


def judge_keys(keys: OfferedKeys, identity: KnownIdentity, now: datetime) -> KeysAccepted | EvidenceRefused:
    """Whether these may be the server's keys; not yet that the machine has them. now: with a time zone."""
    raise NotImplementedError


def judge_evidence(
    evidence: Evidence, identity: KnownIdentity, challenge: ChallengeState, expected: ExpectedBoot, now: datetime
) -> EvidenceAccepted | EvidenceRefused:
    """Whether the machine has proved it all. challenge: as `open_` found it. Has no effects."""
    raise NotImplementedError


def confirm_log(evidence: Evidence, challenge: ChallengeState) -> object:
    """For learning: the event log, if keys, activation and quote hold and it replays; compared with nothing."""
    raise NotImplementedError
