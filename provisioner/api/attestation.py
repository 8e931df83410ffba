"""What a Server's status says of who its machine is: what was proved, what waits for a person, who got which credential."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from provisioner.api.rules import DIGEST_RULES
from provisioner.api.schema import FieldSchema, described

KnownBy = Literal["Registered", "Approved", "Certificate"]
"""How an endorsement key is known: from registration, by a person who approved it, by a vendor's certificate."""
EvidenceType = Literal["None", "TPM2"]

PCR_PATTERN: Final = "^[0-9a-f]{64}$"
PCR_VALUE: Final = FieldSchema(doc="Value in the SHA-256 bank, 64 hexadecimal digits.", pattern=PCR_PATTERN)
MAX_BOOT_PROGRAMS: Final = 16
BOOT_PROGRAM: Final = FieldSchema(doc="Authenticode SHA-256 of a program.", max_length=71, rules=DIGEST_RULES)
MAX_CREDENTIALS: Final = 16
"""Of a Server, that are on record."""


@dataclass(frozen=True, kw_only=True)
class SeenMachine:
    """What a machine with a TPM showed that nobody has approved yet."""

    endorsement_key_sha256: str = described(
        "SHA-256 of the endorsement public key. The machine has proved that its TPM holds the key.",
        max_length=71,
        rules=DIGEST_RULES,
    )
    certificate_issuer: str | None = described(
        "Who issued the endorsement key's certificate, by the certificate's own words.", default=None, max_length=256
    )
    pcrs: dict[str, str] = described(
        "Platform configuration registers that the firmware extended, as the TPM quoted them, by their numbers.",
        default_factory=dict,
        max_properties=24,
        item=PCR_VALUE,
    )
    boot_programs: tuple[str, ...] = described(
        "Programs that the firmware started before the kernel, such as iPXE, by the event log.",
        default=(),
        max_items=MAX_BOOT_PROGRAMS,
        item=BOOT_PROGRAM,
    )
    time: str = described("When it was seen last.", format="date-time")


@dataclass(frozen=True, kw_only=True)
class AttestationStatus:
    """What the machine proved of itself, for which boot, and what waits for approval."""

    endorsement_key_sha256: str | None = described(
        "SHA-256 of the endorsement public key by which it was known.", default=None, max_length=71, rules=DIGEST_RULES
    )
    attestation_key_sha256: str | None = described(
        "SHA-256 of the attestation public key that signed the quote; it is on the TPM of the endorsement key.",
        default=None,
        max_length=71,
        rules=DIGEST_RULES,
    )
    known_by: KnownBy | None = described(
        "How the endorsement key was known: Registered (spec.endorsementKeySHA256), Approved (the same, after the "
        "machine had shown it), Certificate (of an authority that the boot hosts are given).",
        default=None,
    )
    firmware_profile: str | None = described(
        "FirmwareProfile that the quoted registers agreed with.", default=None, max_length=253
    )
    pcr_digest: str | None = described(
        "Digest of the quoted registers, as the TPM signed it.", default=None, max_length=71, rules=DIGEST_RULES
    )
    order_id: str | None = described("Boot order for which it was proved.", default=None, max_length=63)
    boot_id: str | None = described("Kernel boot id that the machine named then.", default=None, max_length=63)
    time: str | None = described("When it was proved.", default=None, format="date-time")
    pending: SeenMachine | None = described(
        "What a machine showed last that is not approved; kubectl provision attestation approve does that.",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class IssuedCredential:
    """A bootstrap token that was handed out."""

    token_id: str = described("Public part of the token; it names the user of the certificate request.", max_length=16)
    order_id: str = described("Boot order for which it was.", max_length=63)
    boot_id: str = described("Kernel boot id that the machine named.", max_length=63)
    address: str = described("Address from which it was asked for.", max_length=45)
    evidence: EvidenceType = described("What the machine offered of itself.")
    endorsement_key_sha256: str | None = described(
        "The endorsement key to which the configuration was sealed; absent if it was sent as it is.",
        default=None,
        max_length=71,
        rules=DIGEST_RULES,
    )
    known_by: KnownBy | None = described(
        "How that key was known; absent if nothing was proved: then address and order alone decided.", default=None
    )
    time: str = described("When it was handed out.", format="date-time")
