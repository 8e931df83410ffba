"""Challenges that no replica has to remember: what has to be known later travels with the machine, sealed.

Any replica that has the keys opens what another has sealed. A sealed state says nothing to who reads it, and cannot be
changed or made without the keys. That each is used once is left to the caller, who has `challenge_id` for it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import SecretBytes
from provisioner.attestation.credential import make_credential
from provisioner.attestation.outcome import EvidenceRefused, Reason
from provisioner.attestation.tpm.public import PublicArea

LIFE_SECONDS: Final = 60
CLOCK_SKEW_SECONDS: Final = 5
"""That a challenge may lie in the future of the replica that opens it."""
LARGEST_STATE_BYTES: Final = 2048
LARGEST_TEXT: Final = 256
"""Characters of each name that a challenge holds."""
QUOTED_PCRS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14)
KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 32
_SECRET_BYTES: Final = 32
_ID_BYTES: Final = 16
_SEAL_NONCE_BYTES: Final = 12
_PURPOSE: Final = b"provisioner/join/challenge/1"
"""Authenticated with what is sealed: another layout has another number, so that what opens can be read."""
_ACTIVATION: Final = b"provisioner/join/activation"
_WORDS: Final = {
    "server_uid": "Server",
    "order_id": "order",
    "boot_id": "boot",
    "request_key_sha256": "request key",
    "endorsement_key_sha256": "endorsement key",
    "attestation_key_sha256": "attestation key",
}


class ChallengeKeys:
    """The keys by which all replicas seal challenges: the current one, and the one before while keys rotate.

    `repr` and `str` are `***`.
    """

    __slots__ = ("_current", "_previous")

    def __init__(self, current: SecretBytes, previous: SecretBytes | None = None) -> None:
        """Raises: Refused unless each has 32 bytes."""
        for key in (current, previous):
            if key is not None and len(key.reveal()) != KEY_BYTES:
                raise Refused(
                    f"a challenge key has {len(key.reveal())} bytes, expected {KEY_BYTES}",
                    hint="make one by `openssl rand 32`",
                )
        self._current, self._previous = current, previous

    def seal(self, plain: bytes, random: Callable[[int], bytes]) -> bytes:
        """By the current key."""
        nonce = random(_SEAL_NONCE_BYTES)
        return nonce + AESGCM(self._current.reveal()).encrypt(nonce, plain, _PURPOSE)

    def unseal(self, sealed: bytes) -> bytes | None:
        """By either key; nothing if neither has sealed it."""
        nonce, rest = sealed[:_SEAL_NONCE_BYTES], sealed[_SEAL_NONCE_BYTES:]
        if len(rest) < 16:
            return None
        for key in (self._current, self._previous):
            if key is not None:
                try:
                    return AESGCM(key.reveal()).decrypt(nonce, rest, _PURPOSE)
                except InvalidTag:
                    continue
        return None

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("ChallengeKeys are not pickled")


def public_area_sha256(public: PublicArea) -> str:
    """Digest of a TPMT_PUBLIC as it was sent, by which a challenge names the keys that it is for."""
    return f"sha256:{hashlib.sha256(public.marshalled).hexdigest()}"


@dataclass(frozen=True, kw_only=True)
class ChallengeBinding:
    """For whom a challenge is: all of it must be the same when the answer comes.

    server_uid, order_id, boot_id: at most LARGEST_TEXT characters each. request_key_sha256: of the request's key.
    endorsement_key_sha256, attestation_key_sha256: public_area_sha256 of each.
    """

    server_uid: str
    order_id: str
    boot_id: str
    request_key_sha256: str
    endorsement_key_sha256: str
    attestation_key_sha256: str


@dataclass(frozen=True, kw_only=True)
class ChallengeState:
    """What is sealed. challenge_id: 16 random bytes, by which a caller knows that it was used. issued_at: seconds since
    the epoch."""

    challenge_id: bytes
    challenged: ChallengeBinding
    secret: SecretBytes = field(repr=False)
    nonce: bytes
    issued_at: float


@dataclass(frozen=True, kw_only=True)
class IssuedChallenge:
    """What the machine is sent. state: opaque, at most LARGEST_STATE_BYTES."""

    challenge_id: bytes
    credential_blob: bytes
    encrypted_secret: bytes
    nonce: bytes
    state: bytes


def issue(
    keys: ChallengeKeys,
    challenged: ChallengeBinding,
    endorsement: PublicArea,
    attestation: PublicArea,
    *,
    now: float,
    random: Callable[[int], bytes] = os.urandom,
) -> IssuedChallenge:
    """A challenge that only the TPM with both keys can answer, within LIFE_SECONDS of `now` (seconds since the epoch).

    endorsement, attestation: keys that check_endorsement_key and check_attestation_key have found right.
    Raises: MalformedTpmData for what they would not have passed; Refused for names longer than LARGEST_TEXT.
    """
    for name, value in asdict(challenged).items():
        if len(value) > LARGEST_TEXT:
            raise Refused(f"{name} has {len(value)} characters", hint=f"at most {LARGEST_TEXT} are expected")
    secret, nonce, challenge_id = SecretBytes(random(_SECRET_BYTES)), random(_NONCE_BYTES), random(_ID_BYTES)
    blob, encrypted = make_credential(endorsement, attestation.name(), secret, random=random)
    plain = json.dumps(
        {
            "id": b64encode(challenge_id).decode(),
            "secret": b64encode(secret.reveal()).decode(),
            "nonce": b64encode(nonce).decode(),
            "issuedAt": now,
            **asdict(challenged),
        },
        separators=(",", ":"),
    ).encode()
    return IssuedChallenge(
        challenge_id=challenge_id,
        credential_blob=blob,
        encrypted_secret=encrypted,
        nonce=nonce,
        state=keys.seal(plain, random),
    )


def open_(
    keys: ChallengeKeys, state: bytes, challenged: ChallengeBinding, *, now: float
) -> ChallengeState | EvidenceRefused:
    """What was sealed, if one of the keys sealed it, not longer than LIFE_SECONDS ago, for this `challenged`.

    Refused otherwise, as ChallengeForged, ChallengeExpired or ChallengeMismatch.
    """
    plain = keys.unseal(state) if len(state) <= LARGEST_STATE_BYTES else None
    if plain is None:
        return EvidenceRefused(
            Reason.CHALLENGE_FORGED, "the challenge's state was sealed by none of our keys; ask for a new challenge"
        )
    opened = _read(plain)
    age = now - opened.issued_at
    if not -CLOCK_SKEW_SECONDS <= age <= LIFE_SECONDS:
        return EvidenceRefused(
            Reason.CHALLENGE_EXPIRED,
            f"the challenge was issued {age:.0f} s ago, expected at most {LIFE_SECONDS} s; ask for a new one",
        )
    sealed = asdict(opened.challenged)
    for name, value in asdict(challenged).items():
        if sealed[name] != value:
            return EvidenceRefused(
                Reason.CHALLENGE_MISMATCH,
                f"the challenge was issued for another {_WORDS[name]}; ask for one with what you are now",
            )
    return opened


def _read(plain: bytes) -> ChallengeState:
    document: dict[str, Any] = json.loads(plain)
    return ChallengeState(
        challenge_id=b64decode(document.pop("id")),
        secret=SecretBytes(b64decode(document.pop("secret"))),
        nonce=b64decode(document.pop("nonce")),
        issued_at=float(document.pop("issuedAt")),
        challenged=ChallengeBinding(**document),
    )


def activation_proof(secret: SecretBytes, nonce: bytes) -> bytes:
    """What the machine sends to show that its TPM opened the credential: HMAC-SHA256, 32 bytes."""
    return hmac.digest(secret.reveal(), _ACTIVATION + nonce, "sha256")
