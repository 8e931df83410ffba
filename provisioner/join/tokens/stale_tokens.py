"""Bootstrap tokens that a crash or a race left over are removed; Kubernetes' own token cleaner removes expired ones.

Without a look at the Secrets, which would need the right to read all of kube-system: a Server's status names its token
before that exists, so whoever follows the Servers sees each that is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog

from provisioner.api.machinery.errors import Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import SECRETS
from provisioner.join.tokens.mint import TOKEN_NAMESPACE, token_secret_name

log = structlog.get_logger()

SETTLE_SECONDS: Final = 30
"""The request that a left-over token was made for may be under way still: its Secret comes after its name."""


def left_over(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str | None:
    """Id of the token that a Server's status names no longer, if there was one; so it is when the Server is gone."""
    before, after = _token_id(old), _token_id(new)
    return before if before != after else None


def _token_id(server: Mapping[str, Any] | None) -> str | None:
    join = ((server or {}).get("status") or {}).get("join") or {}
    token_id = join.get("tokenID")
    return str(token_id) if token_id else None


@dataclass(frozen=True, kw_only=True)
class TokenCleaner:
    """Removes tokens by their ids, each some time after it was left over."""

    cluster: Cluster

    def reconcile(self, token_id: str) -> None:
        """Remove the token's Secret if it is there. Raises: Retryable."""
        try:
            if self.cluster.delete(SECRETS, token_secret_name(token_id), namespace=TOKEN_NAMESPACE):
                log.info("stale token removed", token_id=token_id)
        except (Refused, ValueError) as error:
            # Boot hosts write the ids: by one of another token they would have it deleted.
            log.warning("stale token is not ours", token_id=token_id, error=str(error))
