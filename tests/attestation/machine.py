"""A machine that has booted, and answers a challenge: with a real TPM or a fake one, honest or not."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from provisioner.api.machinery.values import SecretBytes, Sha256Digest
from provisioner.attestation.boot import ExpectedBoot
from provisioner.attestation.challenge import (
    KEY_BYTES,
    QUOTED_PCRS,
    ChallengeBinding,
    ChallengeKeys,
    ChallengeState,
    IssuedChallenge,
    activation_proof,
    issue,
    open_,
    public_area_sha256,
)
from provisioner.attestation.endorsement import endorsement_key_sha256
from provisioner.attestation.event_log.parse import parse_event_log
from provisioner.attestation.judge import Evidence, KnownIdentity, OfferedKeys
from provisioner.attestation.measurements import FirmwareMeasurements, ImageMeasurements, learn_firmware
from provisioner.attestation.tpm.public import PublicArea
from tests.attestation.fake_tpm import FakeTpm
from tests.attestation.firmware_log import (
    INITRD,
    IPXE,
    KERNEL,
    LOAD_OPTIONS,
    LoggedEvent,
    a_boot,
    pcr_values,
    write_log,
)

NOW: Final = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)


def new_keys(previous: SecretBytes | None = None) -> ChallengeKeys:
    return ChallengeKeys(SecretBytes(os.urandom(KEY_BYTES)), previous)


KEYS: Final = new_keys()


def digest_of(raw: bytes) -> Sha256Digest:
    return Sha256Digest(f"sha256:{raw.hex()}")


IMAGE: Final = ImageMeasurements(kernel=digest_of(KERNEL), initrd=digest_of(INITRD))
LOG: Final = parse_event_log(write_log(a_boot()))
FIRMWARE: Final = learn_firmware("model-a-1.0", LOG, IMAGE.kernel)


def expected_boot(*firmware: FirmwareMeasurements) -> ExpectedBoot:
    return ExpectedBoot(
        image=IMAGE,
        load_options=digest_of(LOAD_OPTIONS),
        firmware=firmware or (FIRMWARE,),
        boot_programs={digest_of(IPXE): "iPXE"},
    )


def challenged(endorsement: PublicArea, attestation: PublicArea, **changes: str) -> ChallengeBinding:
    known = {
        "server_uid": "5c1f",
        "order_id": "order-1",
        "boot_id": "boot-1",
        "request_key_sha256": "sha256:ab",
        "endorsement_key_sha256": public_area_sha256(endorsement),
        "attestation_key_sha256": public_area_sha256(attestation),
    }
    return ChallengeBinding(**known | changes)


def a_challenge(endorsement: PublicArea, attestation: PublicArea) -> tuple[IssuedChallenge, ChallengeState]:
    """As the service issues it, and as it finds it when the answer comes."""
    asker = challenged(endorsement, attestation)
    issued = issue(KEYS, asker, endorsement, attestation, now=NOW.timestamp())
    opened = open_(KEYS, issued.state, asker, now=NOW.timestamp() + 1)
    assert isinstance(opened, ChallengeState)
    return issued, opened


class FakeMachine:
    """Its TPM is in Python. events: what its firmware has logged, and its PCRs hold. hand_overs: digests that went into
    PCR 14 since, of which no log tells."""

    def __init__(
        self, tpm: FakeTpm, events: tuple[LoggedEvent, ...] | None = None, hand_overs: tuple[bytes, ...] = ()
    ) -> None:
        self.tpm = tpm
        self.events = a_boot() if events is None else events
        self.hand_overs = hand_overs

    @property
    def keys(self) -> OfferedKeys:
        return OfferedKeys(self.tpm.endorsement, self.tpm.attestation)

    @property
    def identity(self) -> KnownIdentity:
        return KnownIdentity(registered=endorsement_key_sha256(self.tpm.endorsement))

    @property
    def values(self) -> Mapping[int, bytes]:
        measured = tuple(LoggedEvent(14, 0, digest, b"") for digest in self.hand_overs)
        return pcr_values((*self.events, *measured), QUOTED_PCRS)

    def answer(self, issued: IssuedChallenge, lie: Callable[[Evidence], Evidence] = lambda honest: honest) -> Evidence:
        secret = SecretBytes(self.tpm.activate(issued.credential_blob, issued.encrypted_secret))
        quote, signature = self.tpm.quote(issued.nonce, self.values)
        return lie(
            Evidence(
                keys=self.keys,
                activation=activation_proof(secret, issued.nonce),
                quote=quote,
                signature=signature,
                pcr_values=self.values,
                event_log=write_log(self.events),
            )
        )
