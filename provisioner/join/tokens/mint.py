"""Bootstrap tokens: one server, one use, minutes to live. `admission.admit` decides whether one is minted.

Source: Kubernetes, "Authenticating with Bootstrap Tokens".
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.machinery.values import Secret

TOKEN_TTL_SECONDS: Final = 600
TOKEN_NAMESPACE: Final = "kube-system"  # noqa: S105 (a place, not a password)
BOOTSTRAP_GROUP: Final = "system:bootstrappers:provisioner"
BOOTSTRAP_USER_PREFIX: Final = "system:bootstrap:"
SERVER_LABEL: Final = "provisioner.dev/server"

_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_TOKEN_ID: Final = re.compile(r"[a-z0-9]{6}")


@dataclass(frozen=True)
class BootstrapToken:
    """`id` is public (it names the Secret and the user), `secret` is not."""

    id: str
    secret: Secret

    def wire(self) -> Secret:
        """`id.secret`, as the kubelet sends it."""
        return Secret(f"{self.id}.{self.secret.reveal()}")


def mint_token(choice: Callable[[str], str] = secrets.choice) -> BootstrapToken:
    """A fresh token: id `[a-z0-9]{6}` (31 bits), secret `[a-z0-9]{16}` (82 bits), from the system's randomness."""
    return BootstrapToken(
        id="".join(choice(_ALPHABET) for _ in range(6)),
        secret=Secret("".join(choice(_ALPHABET) for _ in range(16))),
    )


def token_secret_name(token_id: str) -> str:
    """Name of the Secret, which Kubernetes prescribes. Raises: ValueError if it is no token id."""
    if not _TOKEN_ID.fullmatch(token_id):
        raise ValueError(f"{token_id!r} is not the id of a bootstrap token")
    return f"bootstrap-token-{token_id}"


def token_secret(token: BootstrapToken, server_name: str, now: datetime) -> dict[str, Any]:
    """The Secret that makes the token valid for ten minutes, for authentication only.

    Its label names the server: by it our tokens are told from those of others. Raises: ValueError if none is named.
    """
    if not server_name:
        raise ValueError("a token is of one server, which must be named")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {
            "name": token_secret_name(token.id),
            "namespace": TOKEN_NAMESPACE,
            "labels": {SERVER_LABEL: server_name},
        },
        "immutable": True,
        "stringData": {
            "token-id": token.id,
            "token-secret": token.secret.reveal(),
            "expiration": rfc3339(now + timedelta(seconds=TOKEN_TTL_SECONDS)),
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": BOOTSTRAP_GROUP,
            "description": f"join of server {server_name}",
        },
    }


def token_id_of_user(username: str) -> str | None:
    """`system:bootstrap:abc123` → `abc123`; None if it is not such a user."""
    token_id = username.removeprefix(BOOTSTRAP_USER_PREFIX)
    return token_id if token_id != username and _TOKEN_ID.fullmatch(token_id) else None
