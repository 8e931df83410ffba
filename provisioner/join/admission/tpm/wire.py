"""Evidence of type TPM2 as JSON: read strictly and within bounds, before anything of it is parsed. Pure."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from provisioner.api.machinery.errors import Refused
from provisioner.attestation.challenge import LARGEST_STATE_BYTES, QUOTED_PCRS, IssuedChallenge
from provisioner.attestation.endorsement import LARGEST_CERTIFICATE_BYTES, MOST_CERTIFICATES
from provisioner.attestation.event_log.parse import LARGEST_LOG_BYTES

TYPE: Final = "TPM2"
_LARGEST_KEY_BYTES: Final = 1024
_LARGEST_SIGNED_BYTES: Final = 1024
_FIRST: Final = frozenset({"type", "endorsementKey", "endorsementCertificates", "attestationKey"})
_ANSWER: Final = frozenset({"state", "activation", "quote", "signature", "pcrValues", "eventLog"})
_PCR_VALUE: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ChallengeAnswer:
    """What the second request has beside the keys."""

    state: bytes
    activation: bytes
    quote: bytes
    signature: bytes
    pcr_values: Mapping[int, bytes]
    event_log: bytes
    """Empty where the machine's firmware gives none."""


@dataclass(frozen=True)
class TpmEvidence:
    """endorsement_key, attestation_key: TPMT_PUBLIC. certificates: DER. answer: None in the first request."""

    endorsement_key: bytes
    attestation_key: bytes
    certificates: tuple[bytes, ...]
    answer: ChallengeAnswer | None


def read_evidence(evidence: Mapping[str, Any]) -> TpmEvidence:
    """Raises: Refused for a field that is unknown, absent, too long or not what it should be."""
    keys = set(evidence)
    unknown = sorted(keys - _FIRST - _ANSWER)
    if unknown:
        _refuse(f"has the unknown field {unknown[0][:40]!r}")
    certificates = evidence.get("endorsementCertificates", [])
    if not isinstance(certificates, list) or len(certificates) > MOST_CERTIFICATES:
        _refuse(f"has no list of at most {MOST_CERTIFICATES} endorsementCertificates")
    return TpmEvidence(
        endorsement_key=_bytes(evidence, "endorsementKey", _LARGEST_KEY_BYTES),
        attestation_key=_bytes(evidence, "attestationKey", _LARGEST_KEY_BYTES),
        certificates=tuple(
            _decode(each, "endorsementCertificates", LARGEST_CERTIFICATE_BYTES) for each in certificates
        ),
        answer=_answer(evidence) if keys & _ANSWER else None,
    )


def _answer(evidence: Mapping[str, Any]) -> ChallengeAnswer:
    return ChallengeAnswer(
        state=_bytes(evidence, "state", LARGEST_STATE_BYTES),
        activation=_bytes(evidence, "activation", 32),
        quote=_bytes(evidence, "quote", _LARGEST_SIGNED_BYTES),
        signature=_bytes(evidence, "signature", _LARGEST_SIGNED_BYTES),
        pcr_values=_pcr_values(evidence.get("pcrValues")),
        event_log=b"" if evidence.get("eventLog") == "" else _bytes(evidence, "eventLog", LARGEST_LOG_BYTES),
    )


def _pcr_values(given: object) -> dict[int, bytes]:
    if not isinstance(given, dict) or len(given) > len(QUOTED_PCRS):
        _refuse("has no pcrValues")
    names = {str(pcr): pcr for pcr in QUOTED_PCRS}
    found = {}
    for name, value in given.items():
        if name not in names or not isinstance(value, str) or not _PCR_VALUE.fullmatch(value):
            _refuse("has pcrValues that are not those asked for, 64 hexadecimal digits each")
        found[names[name]] = bytes.fromhex(value)
    return found


def _bytes(evidence: Mapping[str, Any], key: str, most: int) -> bytes:
    return _decode(evidence.get(key), key, most)


def _decode(given: object, key: str, most: int) -> bytes:
    if not isinstance(given, str) or not given or len(given) > (most + 2) // 3 * 4:
        _refuse(f"has no {key} of at most {most} bytes in base64")
    try:
        decoded = b64decode(given, validate=True)
    except ValueError:
        _refuse(f"has {key} that is not base64")
    if len(decoded) > most:
        _refuse(f"has {key} of {len(decoded)} bytes, at most {most} are expected")
    return decoded


def _refuse(what: str) -> NoReturn:
    raise Refused(f"evidence of type {TYPE} {what}", hint="use the agent of a current image") from None


def challenge_to_wire(issued: IssuedChallenge) -> dict[str, Any]:
    """The challenge as the agent reads it."""
    return {
        "type": TYPE,
        "credentialBlob": b64encode(issued.credential_blob).decode(),
        "encryptedSecret": b64encode(issued.encrypted_secret).decode(),
        "nonce": b64encode(issued.nonce).decode(),
        "pcrs": list(QUOTED_PCRS),
        "state": b64encode(issued.state).decode(),
    }
