"""The configuration of a join, encrypted to the machine whose TPM opened the credential."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from provisioner.api.machinery.values import SecretBytes

ALGORITHM: Final = "A256GCM"
_INFO: Final = b"provisioner/join/configuration"


@dataclass(frozen=True)
class Sealed:
    """A256GCM. nonce: 12 bytes. ciphertext: with its tag of 16 bytes."""

    nonce: bytes
    ciphertext: bytes


def seal_configuration(secret: SecretBytes, challenge_nonce: bytes, server_name: str, plain: bytes) -> Sealed:
    """Encrypt `plain` by a key from the challenge's secret and nonce; the server's name is authenticated with it."""
    nonce = os.urandom(12)
    key = HKDF(SHA256(), 32, challenge_nonce, _INFO).derive(secret.reveal())
    return Sealed(nonce, AESGCM(key).encrypt(nonce, plain, server_name.encode()))
