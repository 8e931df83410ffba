"""MakeCredential, as a TPM does it, without one: only the TPM that has both keys can open what comes out.

Source: TPM 2.0 Library, Part 1: section 24 (credential protection), annexes B.4 (OAEP) and C.6 (ECDH secret sharing),
section 11.4.10 (KDFa and KDFe).
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES

from provisioner.api.machinery.values import SecretBytes
from provisioner.attestation.tpm.public import PublicArea
from provisioner.attestation.tpm.wire import sized, uint32

try:
    from cryptography.hazmat.decrepit.ciphers.modes import CFB
except ImportError:
    from cryptography.hazmat.primitives.ciphers.modes import CFB

_IDENTITY: Final = b"IDENTITY\0"
_SEED_BYTES: Final = 32
_COORDINATE_BYTES: Final = 32
_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
LARGEST_SECRET_BYTES: Final = 32
"""That fit a credential of a key named by SHA-256."""


def make_credential(
    endorsement: PublicArea,
    attestation_name: bytes,
    secret: SecretBytes,
    *,
    random: Callable[[int], bytes] = os.urandom,
) -> tuple[bytes, bytes]:
    """Encrypt `secret` (1 to 32 bytes) so that only the TPM with `endorsement` opens it, and only if it also holds a
    key with the Name `attestation_name`.

    endorsement: a key that check_endorsement_key has found right. random: bytes for seed or ephemeral key; OAEP's own
    come from OpenSSL.
    Returns: TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET, as TPM2_ActivateCredential takes them.
    Raises: MalformedTpmData if the public area holds no key; ValueError for a secret of another size.
    """
    if not 1 <= len(secret.reveal()) <= LARGEST_SECRET_BYTES:
        raise ValueError(f"a credential holds 1 to {LARGEST_SECRET_BYTES} bytes")
    key = endorsement.public_key
    seed, encrypted = _for_rsa(key, random) if isinstance(key, rsa.RSAPublicKey) else _for_ecc(key, random)
    encryptor = Cipher(AES(_kdf_a(seed, b"STORAGE\0", attestation_name, 16)), CFB(bytes(16))).encryptor()
    identity = encryptor.update(sized(secret.reveal())) + encryptor.finalize()
    outer = hmac.digest(_kdf_a(seed, b"INTEGRITY\0", b"", 32), identity + attestation_name, "sha256")
    return sized(sized(outer) + identity), sized(encrypted)


def _for_rsa(key: rsa.RSAPublicKey, random: Callable[[int], bytes]) -> tuple[bytes, bytes]:
    seed = random(_SEED_BYTES)
    oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), _IDENTITY)
    return seed, key.encrypt(seed, oaep)


def _for_ecc(key: ec.EllipticCurvePublicKey, random: Callable[[int], bytes]) -> tuple[bytes, bytes]:
    # Eight bytes more than the order has leave no bias that matters.
    scalar = int.from_bytes(random(_COORDINATE_BYTES + 8), "big") % (_P256_ORDER - 1) + 1
    ephemeral = ec.derive_private_key(scalar, ec.SECP256R1())
    ours, theirs = ephemeral.public_key().public_numbers(), key.public_numbers()
    x, y, other_x = (number.to_bytes(_COORDINATE_BYTES, "big") for number in (ours.x, ours.y, theirs.x))
    shared = ephemeral.exchange(ec.ECDH(), key)
    seed = hashlib.sha256(uint32(1) + shared + _IDENTITY + x + other_x).digest()
    return seed, sized(x) + sized(y)


def _kdf_a(key: bytes, label: bytes, context: bytes, size: int) -> bytes:
    """KDFa with SHA-256: one block is enough for what is asked for here. label: with its NUL."""
    return hmac.digest(key, uint32(1) + label + context + uint32(size * 8), "sha256")[:size]
