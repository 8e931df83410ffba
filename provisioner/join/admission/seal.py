"""A join configuration that only one TPM's machine can read."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from provisioner.api.machinery.values import SecretBytes
from provisioner.attestation.sealing import ALGORITHM, seal_configuration


@dataclass(frozen=True)
class Seal:
    """What the machine that answered the challenge shares with us: the secret that its TPM opened, and the nonce."""

    secret: SecretBytes
    nonce: bytes
    endorsement_key_sha256: str


def sealed_to_wire(seal: Seal, server_name: str, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON that the agent reads: the configuration encrypted, bound to the server's name."""
    plain = json.dumps(configuration, separators=(",", ":")).encode()
    sealed = seal_configuration(seal.secret, seal.nonce, server_name, plain)
    return {
        "sealed": {
            "type": ALGORITHM,
            "nonce": b64encode(sealed.nonce).decode(),
            "ciphertext": b64encode(sealed.ciphertext).decode(),
        }
    }
