"""What a Server's status says of who its machine is: what was proved, what waits for a person, who got which token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from provisioner.api.machinery.schema import described, optional
from provisioner.api.machinery.values import DIGEST_PATTERN

KnownBy = Literal["Registered", "Approved", "Certificate"]
"""How an endorsement key is known: from registration, by a person who approved it, by a vendor's certificate."""
EvidenceType = Literal["None", "TPM2"]

CREDENTIAL_CONTESTED: Final = "CredentialContested"
"""Condition of a Server: two machines asked for the credential of its boot, and nothing was proved. A boot ends it."""
MAX_CREDENTIALS: Final = 16
"""Of a Server, that are on record."""
MAX_COUNT: Final = 2**32 - 1
"""Of a TPM's resets."""


@dataclass(frozen=True, kw_only=True)
class SeenMachine:
    """What a machine with a TPM showed that nobody has approved yet."""

    endorsement_key_sha256: str = described(
        "SHA-256 of the endorsement public key. The machine has proved that its TPM holds the key.",
        pattern=DIGEST_PATTERN,
    )
    authority: str | None = optional(
        "Vendor's authority that vouches for the key, where the boot hosts know it.", max_length=256
    )
    firmware_profile: str | None = optional(
        "FirmwareProfile that was learned of it, and is not approved.", max_length=253
    )
    is_registered: bool = described(
        "Whether the key was registered before the machine showed it. If not, who registers it approves it.",
        default=False,
    )
    time: str = described("When it was seen last.", format="date-time")


@dataclass(frozen=True, kw_only=True)
class AttestationStatus:
    """What the machine proved of itself, for which boot, and what waits for approval."""

    endorsement_key_sha256: str | None = optional(
        "SHA-256 of the endorsement public key by which it was known.", pattern=DIGEST_PATTERN
    )
    attestation_key_sha256: str | None = optional(
        "SHA-256 of the attestation public key that signed the quote; it is on the TPM of the endorsement key.",
        pattern=DIGEST_PATTERN,
    )
    known_by: KnownBy | None = optional(
        "How the endorsement key was known: Registered (spec.endorsementKeySHA256), Approved (the same, after the "
        "machine had shown it), Certificate (of an authority that the boot hosts are given)."
    )
    firmware_profile: str | None = optional("FirmwareProfile that the quoted registers agreed with.", max_length=253)
    firmware_digest: str | None = optional("Digest of what that profile judged then.", pattern=DIGEST_PATTERN)
    pcr_digest: str | None = optional(
        "SHA-256 over the quoted registers, from the lowest to the highest.", pattern=DIGEST_PATTERN
    )
    pcr14: str | None = optional(
        "Value of PCR 14, of the bank SHA-256: zeros after a start by the firmware; a kexec extends it.",
        pattern=DIGEST_PATTERN,
    )
    tpm_reset_count: int | None = optional(
        "Resets that the TPM had counted then; absent if the attestation key hides the count.",
        minimum=0,
        maximum=MAX_COUNT,
    )
    tpm_restart_count: int | None = optional(
        "Restarts, which keep a saved state, since that reset.", minimum=0, maximum=MAX_COUNT
    )
    order_id: str | None = optional("Boot order for which it was proved.", max_length=63)
    boot_id: str | None = optional("Kernel boot id that the machine named then.", max_length=63)
    time: str | None = optional("When it was proved.", format="date-time")
    pending: SeenMachine | None = optional(
        "What a machine showed last that is not approved; kubectl provision attestation approve does that."
    )


@dataclass(frozen=True, kw_only=True)
class IssuedCredential:
    """A bootstrap token that was handed out."""

    token_id: str = described("Public part of the token; it names the user of the certificate request.", max_length=16)
    order_id: str = described("Boot order for which it was.", max_length=63)
    boot_id: str = described("Kernel boot id that the machine named.", max_length=63)
    address: str = described("Address from which it was asked for.", max_length=45)
    evidence: EvidenceType = described("What the machine offered of itself.")
    endorsement_key_sha256: str | None = optional(
        "The endorsement key to which the configuration was sealed; absent if it was sent as it is.",
        pattern=DIGEST_PATTERN,
    )
    known_by: KnownBy | None = optional(
        "How that key was known; absent if nothing was proved: then address and order alone decided."
    )
    time: str = described("When it was handed out.", format="date-time")
