"""Bootstrap tokens that a crash or a race left over are removed; Kubernetes' own token cleaner removes expired ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from provisioner.api.errors import NotFound
from provisioner.api.meta import parse_time
from provisioner.api.server import Server
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import SECRETS
from provisioner.join.mint import SERVER_LABEL, TOKEN_NAMESPACE

log = structlog.get_logger()

LOOK_EVERY_SECONDS: Final = 60.0
SETTLE_SECONDS: Final = 30
"""A Secret younger than this may belong to a request that is being answered."""

_PREFIX: Final = "bootstrap-token-"


def is_stale(secret: Mapping[str, Any], server: Server | None, now: datetime) -> bool:
    """Whether nobody needs this token: its server is gone, was handed another one, or has its certificate."""
    metadata = secret["metadata"]
    if now - parse_time(metadata["creationTimestamp"]) < timedelta(seconds=SETTLE_SECONDS):
        return False
    join = server.status.join if server is not None else None
    token_id = str(metadata["name"]).removeprefix(_PREFIX)
    return join is None or join.token_id != token_id or join.certificate_token_id == token_id


@dataclass(frozen=True, kw_only=True)
class TokenCleaner:
    """Looks at all tokens of ours, once a minute."""

    cluster: Cluster
    now: Callable[[], datetime]

    def reconcile(self, _: str) -> float:
        """Remove what is stale; come back. Raises: Retryable."""
        for secret in self.cluster.list(SECRETS, namespace=TOKEN_NAMESPACE, label_selector=SERVER_LABEL).items:
            name, server_name = secret["metadata"]["name"], secret["metadata"]["labels"][SERVER_LABEL]
            if not name.startswith(_PREFIX) or not is_stale(secret, self._server(server_name), self.now()):
                continue
            self.cluster.delete(SECRETS, name, namespace=TOKEN_NAMESPACE, uid=secret["metadata"]["uid"])
            log.info("stale token removed", secret=name, server=server_name)
        return LOOK_EVERY_SECONDS

    def _server(self, name: str) -> Server | None:
        try:
            return self.cluster.read(Server, name)
        except NotFound:
            return None
