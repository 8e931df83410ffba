"""What the join service does with a TPM, written a second time and by itself: MakeCredential, checks, sealing.

Source: TPM 2.0 Library, part 1, 24 and annexes B and C.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

try:
    from cryptography.hazmat.decrepit.ciphers.modes import CFB
except ImportError:
    from cryptography.hazmat.primitives.ciphers.modes import CFB

PCRS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 14]
P256 = ec.SECP256R1()


def sized(content: bytes) -> bytes:
    return len(content).to_bytes(2, "big") + content


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def public_key(public: bytes) -> rsa.RSAPublicKey | ec.EllipticCurvePublicKey:
    """Of a TPMT_PUBLIC; the numbers stand at its end."""
    if public[:2] == b"\x00\x01":
        return rsa.RSAPublicNumbers(65537, int.from_bytes(public[-256:], "big")).public_key()
    x, y = public[-66:-34], public[-32:]
    return ec.EllipticCurvePublicNumbers(int.from_bytes(x, "big"), int.from_bytes(y, "big"), P256).public_key()


def make_credential(endorsement: bytes, attestation: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET for these two TPMT_PUBLIC."""
    name = b"\x00\x0b" + hashlib.sha256(attestation).digest()
    key = public_key(endorsement)
    if isinstance(key, rsa.RSAPublicKey):
        seed = os.urandom(32)
        oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), b"IDENTITY\0")
        encrypted = key.encrypt(seed, oaep)
    else:
        ours = ec.generate_private_key(P256)
        point, theirs = ours.public_key().public_numbers(), key.public_numbers()
        x, y, other = (number.to_bytes(32, "big") for number in (point.x, point.y, theirs.x))
        seed = hashlib.sha256(b"\0\0\0\1" + ours.exchange(ec.ECDH(), key) + b"IDENTITY\0" + x + other).digest()
        encrypted = sized(x) + sized(y)
    cipher = Cipher(algorithms.AES(_derived(seed, b"STORAGE\0", name, 128)), CFB(bytes(16))).encryptor()
    identity = cipher.update(sized(secret)) + cipher.finalize()
    outer = hmac.digest(_derived(seed, b"INTEGRITY\0", b"", 256), identity + name, "sha256")
    return sized(sized(outer) + identity), sized(encrypted)


def _derived(key: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    text = b"\0\0\0\1" + label + context + bits.to_bytes(4, "big")
    return hmac.digest(key, text, "sha256")[: bits // 8]


def signature_is_right(attestation: bytes, signature: bytes, attest: bytes) -> bool:
    """Raises: InvalidSignature."""
    key = public_key(attestation)
    if isinstance(key, rsa.RSAPublicKey):
        assert signature[:6] == b"\x00\x14\x00\x0b\x01\x00"
        key.verify(signature[6:], attest, padding.PKCS1v15(), hashes.SHA256())
        return True
    assert signature[:4] == b"\x00\x18\x00\x0b"
    size = int.from_bytes(signature[4:6], "big")
    r, s = signature[6 : 6 + size], signature[8 + size :]
    encoded_signature = encode_dss_signature(int.from_bytes(r, "big"), int.from_bytes(s, "big"))
    key.verify(encoded_signature, attest, ec.ECDSA(hashes.SHA256()))
    return True


class Service:
    """One challenge and what is sealed to its answer."""

    def __init__(self, secret: bytes | None = None) -> None:
        self.secret = secret or os.urandom(32)
        self.nonce = os.urandom(32)

    def challenge(self, evidence: dict[str, Any]) -> dict[str, Any]:
        blob, encrypted = make_credential(
            base64.b64decode(evidence["endorsementKey"]), base64.b64decode(evidence["attestationKey"]), self.secret
        )
        return {
            "type": "TPM2",
            "credentialBlob": encoded(blob),
            "encryptedSecret": encoded(encrypted),
            "nonce": encoded(self.nonce),
            "pcrs": PCRS,
            "state": encoded(b"the service's own"),
        }

    def seal(self, configuration: object, server: str) -> dict[str, Any]:
        key = HKDF(hashes.SHA256(), 32, self.nonce, b"provisioner/join/configuration").derive(self.secret)
        nonce = os.urandom(12)
        ciphertext = AESGCM(key).encrypt(nonce, json.dumps(configuration).encode(), server.encode())
        return {"type": "A256GCM", "nonce": encoded(nonce), "ciphertext": encoded(ciphertext)}

    def activation(self) -> str:
        return encoded(hmac.digest(self.secret, b"provisioner/join/activation" + self.nonce, "sha256"))
