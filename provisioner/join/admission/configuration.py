"""The join configuration: what a kubelet starts with, and what of it is the same for all."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from provisioner.api.machinery.values import Secret
from provisioner.api.pools.numa_alignment import NumaAlignment, memory_bytes
from provisioner.attestation.sealing import ALGORITHM, seal_configuration
from provisioner.join.admission.attestation import Seal


@dataclass(frozen=True, kw_only=True)
class JoinSettings:
    """What the service tells every Node."""

    api_server_url: str
    cluster_ca: str
    cluster_dns: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class JoinConfiguration:
    """What a kubelet starts with. Only `to_wire` reveals the token."""

    node_name: str
    api_server_url: str
    cluster_ca: str
    bootstrap_token: Secret
    node_address: str
    kubelet: Mapping[str, Any] = field(repr=False)
    numa_alignment: NumaAlignment | None = None

    def to_wire(self) -> dict[str, Any]:
        """The JSON that the agent reads; it holds the token."""
        wire: dict[str, Any] = {
            "nodeName": self.node_name,
            "apiServer": self.api_server_url,
            "clusterCA": self.cluster_ca,
            "bootstrapToken": self.bootstrap_token.reveal(),
            "nodeAddress": self.node_address,
            "kubeletConfiguration": dict(self.kubelet),
        }
        if self.numa_alignment is not None:
            # The machine computes what follows: what a node says of itself would be no better known here, and what it
            # gets wrong concerns its own pods alone.
            wire["numaAlignment"] = {
                "reservedCores": self.numa_alignment.reserved_cores,
                "reservedMemoryBytes": memory_bytes(self.numa_alignment.reserved_memory),
                "evictionMemoryBytes": memory_bytes(self.numa_alignment.eviction_memory),
            }
        return wire


@dataclass(frozen=True)
class SealedConfiguration:
    """A join configuration for the one machine whose TPM has answered."""

    configuration: JoinConfiguration
    seal: Seal = field(repr=False)

    def to_wire(self) -> dict[str, Any]:
        """The JSON that the agent reads: the configuration encrypted, bound to the server's name."""
        plain = json.dumps(self.configuration.to_wire(), separators=(",", ":")).encode()
        sealed = seal_configuration(self.seal.secret, self.seal.nonce, self.configuration.node_name, plain)
        return {
            "sealed": {
                "type": ALGORITHM,
                "nonce": b64encode(sealed.nonce).decode(),
                "ciphertext": b64encode(sealed.ciphertext).decode(),
            }
        }
