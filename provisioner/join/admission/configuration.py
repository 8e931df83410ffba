"""The join configuration: what a kubelet starts with, and what of it is the same for all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.api.values import Secret
from provisioner.join.mint import MAX_TOKEN_TTL_SECONDS


@dataclass(frozen=True, kw_only=True)
class JoinSettings:
    """What the service tells every Node."""

    api_server_url: str
    cluster_ca: str
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"
    token_ttl_seconds: int = MAX_TOKEN_TTL_SECONDS


@dataclass(frozen=True, kw_only=True)
class JoinConfiguration:
    """What a kubelet starts with. Only `to_wire` reveals the token."""

    node_name: str
    api_server_url: str
    cluster_ca: str
    bootstrap_token: Secret
    node_address: str
    kubelet: Mapping[str, Any] = field(repr=False)

    def to_wire(self) -> dict[str, Any]:
        """The JSON that the agent reads; it holds the token."""
        return {
            "nodeName": self.node_name,
            "apiServer": self.api_server_url,
            "clusterCA": self.cluster_ca,
            "bootstrapToken": self.bootstrap_token.reveal(),
            "nodeAddress": self.node_address,
            "kubeletConfiguration": dict(self.kubelet),
        }
