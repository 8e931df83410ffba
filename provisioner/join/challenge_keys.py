"""The keys by which the boot hosts seal challenges: one Secret, made and rotated by the join controller, read by them.

Two are valid, so that a challenge of before a rotation is answered after it; a challenge lives for a minute, a key for
two days.
"""

from __future__ import annotations

import binascii
import os
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog

from provisioner.api.machinery.errors import Retryable
from provisioner.api.machinery.meta import read_time, rfc3339
from provisioner.api.machinery.values import SecretBytes
from provisioner.attestation.challenge import KEY_BYTES, ChallengeKeys
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import ATTESTATION_SECRETS, SECRETS

log = structlog.get_logger()

SECRET_NAME: Final = "challenge-keys"  # noqa: S105 (a name, not a password)
LIFE: Final = timedelta(hours=24)
"""How long a key seals; for as long again it opens."""
KEY_READ_SECONDS: Final = 30.0
"""For how long a boot host relies on what it has read. A key must be known by all replicas before it is retired."""


@dataclass(frozen=True, kw_only=True)
class KeyRotator:
    """Makes the Secret, and makes a new key of it once a day."""

    cluster: Cluster
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    random: Callable[[int], bytes] = os.urandom

    def reconcile(self, name: str) -> float:
        """Seconds until the next rotation. Raises: Retryable."""
        now = self.now()
        found = self.cluster.find(SECRETS, name, namespace=ATTESTATION_SECRETS)
        if found is None:
            body = _secret(name, self.random(KEY_BYTES), None, now)
            self.cluster.create(SECRETS, body, namespace=ATTESTATION_SECRETS)
            log.info("challenge key made")
            return LIFE.total_seconds()
        rotated = read_time(_text(found, "rotated"))
        if rotated is not None and now - LIFE < rotated <= now:
            return (rotated + LIFE - now).total_seconds()
        current = _bytes(found, "current")
        body = _secret(name, self.random(KEY_BYTES), current, now)
        body["metadata"]["resourceVersion"] = found["metadata"]["resourceVersion"]
        body["metadata"]["namespace"] = ATTESTATION_SECRETS
        self.cluster.replace(SECRETS, body)
        log.info("challenge key rotated")
        return LIFE.total_seconds()


def read_challenge_keys(cluster: Cluster) -> ChallengeKeys:
    """Raises: Retryable while there are none."""
    found = cluster.find(SECRETS, SECRET_NAME, namespace=ATTESTATION_SECRETS)
    current = _bytes(found, "current") if found is not None else None
    if current is None:
        raise Retryable(
            f"Secret {ATTESTATION_SECRETS}/{SECRET_NAME} has no key yet, which the controllers' group join makes",
            after_seconds=5.0,
        )
    previous = _bytes(found, "previous") if found is not None else None
    return ChallengeKeys(SecretBytes(current), SecretBytes(previous) if previous is not None else None)


def _secret(name: str, current: bytes, previous: bytes | None, now: datetime) -> dict[str, Any]:
    data = {"current": b64encode(current).decode(), "rotated": b64encode(rfc3339(now).encode()).decode()}
    if previous is not None:
        data["previous"] = b64encode(previous).decode()
    return {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {"name": name}, "data": data}


def _bytes(secret: Mapping[str, Any], key: str) -> bytes | None:
    """A key of the right size; None for anything else, which is then replaced."""
    try:
        value = b64decode((secret.get("data") or {}).get(key) or "", validate=True)
    except (binascii.Error, ValueError):
        return None
    return value if len(value) == KEY_BYTES else None


def _text(secret: Mapping[str, Any], key: str) -> str | None:
    try:
        return b64decode((secret.get("data") or {}).get(key) or "", validate=True).decode()
    except ValueError:
        return None
