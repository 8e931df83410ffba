"""A TPM in Python: keys, credentials and quotes as the specification has them, for any number of machines, and for lies
that a TPM would not tell. What it opens was made by ours, and what a real TPM opens is in test_real_tpm.py."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Mapping
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB

from provisioner.attestation.challenge import QUOTED_PCRS
from provisioner.attestation.tpm.algorithms import Algorithm, Attribute, Curve
from provisioner.attestation.tpm.public import EccPart, PublicArea, RsaPart, Scheme, Symmetric
from tests.attestation.real_tpm import AK_ATTRIBUTES, EK_ATTRIBUTES, ENDORSEMENT, NO_SCHEME, POLICY_A, STORAGE, sized

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
CLOCK: Final = struct.pack(">QIIB", 123_456, 7, 2, 1)
NOBODY: Final = b"\0\x0b" + bytes(32)


def new_key(kind: str, bits: int = 2048) -> PrivateKey:
    if kind == "rsa":
        return rsa.generate_private_key(65537, bits)
    return ec.generate_private_key(ec.SECP256R1())


def area(key: PrivateKey, attributes: Attribute, policy: bytes, symmetric: Symmetric, scheme: Scheme) -> PublicArea:
    if isinstance(key, rsa.RSAPrivateKey):
        modulus = key.public_key().public_numbers().n
        data = modulus.to_bytes(key.key_size // 8, "big")
        part: RsaPart | EccPart = RsaPart(symmetric, scheme, key.key_size, 0, data)
    else:
        point = key.public_key().public_numbers()
        x, y = (number.to_bytes(32, "big") for number in (point.x, point.y))
        part = EccPart(symmetric, scheme, Curve.NIST_P256, NO_SCHEME, x, y)
    return PublicArea(Algorithm.SHA256, attributes, policy, part)


def endorsement_area(key: PrivateKey, attributes: Attribute = EK_ATTRIBUTES, policy: bytes = POLICY_A) -> PublicArea:
    return area(key, attributes, policy, STORAGE, NO_SCHEME)


def attestation_area(
    key: PrivateKey, attributes: Attribute = AK_ATTRIBUTES, hash_: int = Algorithm.SHA256
) -> PublicArea:
    kind = Algorithm.RSASSA if isinstance(key, rsa.RSAPrivateKey) else Algorithm.ECDSA
    return area(key, attributes, b"", Symmetric(Algorithm.NULL), Scheme(kind, hash_))


class FakeTpm:
    """With an endorsement and an attestation key, each `rsa` or `ecc`."""

    def __init__(self, endorsement: str = "ecc", attestation: str = "ecc") -> None:
        self.endorsement_key, self.attestation_key = new_key(endorsement), new_key(attestation)
        self.endorsement = endorsement_area(self.endorsement_key)
        self.attestation = attestation_area(self.attestation_key)
        self.resets, self.restarts = 7, 2
        self.hierarchy = ENDORSEMENT

    def activate(self, blob: bytes, encrypted: bytes) -> bytes:
        """As TPM2_ActivateCredential. Raises: ValueError if the credential is for another key."""
        seed = self._seed(encrypted[2:])
        identity = blob[2:]
        size = struct.unpack(">H", identity[:2])[0]
        outer, inner = identity[2 : 2 + size], identity[2 + size :]
        name = self.attestation.name()
        if not hmac.compare_digest(outer, hmac.digest(kdf_a(seed, b"INTEGRITY", b"", 256), inner + name, "sha256")):
            raise ValueError("TPM_RC_INTEGRITY")
        return cfb_decrypt(kdf_a(seed, b"STORAGE", name, 128), inner)[2:]

    def _seed(self, encrypted: bytes) -> bytes:
        key = self.endorsement_key
        if isinstance(key, rsa.RSAPrivateKey):
            oaep = padding.OAEP(padding.MGF1(hashes.SHA256()), hashes.SHA256(), b"IDENTITY\0")
            return key.decrypt(encrypted, oaep)
        x, y = encrypted[2:34], encrypted[36:68]
        point = ec.EllipticCurvePublicNumbers(int.from_bytes(x, "big"), int.from_bytes(y, "big"), ec.SECP256R1())
        shared = key.exchange(ec.ECDH(), point.public_key())
        ours = key.public_key().public_numbers().x.to_bytes(32, "big")
        return hashlib.sha256(struct.pack(">I", 1) + shared + b"IDENTITY\0" + x + ours).digest()

    def quote(self, nonce: bytes, values: Mapping[int, bytes]) -> tuple[bytes, bytes]:
        quoted = attest(nonce, values, signer=self.qualified_signer(), clock=self.clock())
        return quoted, self.sign(quoted)

    def qualified_signer(self) -> bytes:
        """Of a primary key."""
        return b"\0\x0b" + hashlib.sha256(struct.pack(">I", self.hierarchy) + self.attestation.name()).digest()

    def clock(self) -> bytes:
        return struct.pack(">QIIB", 123_456, self.resets, self.restarts, 1)

    def sign(self, data: bytes) -> bytes:
        key = self.attestation_key
        if isinstance(key, rsa.RSAPrivateKey):
            signature = key.sign(data, padding.PKCS1v15(), hashes.SHA256())
            return struct.pack(">HH", Algorithm.RSASSA, Algorithm.SHA256) + sized(signature)
        r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
        parts = sized(r.to_bytes(32, "big")) + sized(s.to_bytes(32, "big"))
        return struct.pack(">HH", Algorithm.ECDSA, Algorithm.SHA256) + parts


def attest(
    nonce: bytes,
    values: Mapping[int, bytes],
    *,
    bank: int = Algorithm.SHA256,
    magic: int = 0xFF544347,
    kind: int = 0x8018,
    signer: bytes = NOBODY,
    clock: bytes = CLOCK,
) -> bytes:
    """TPMS_ATTEST over PCR values."""
    bits = sum(1 << pcr for pcr in values).to_bytes(3, "little")
    digest = hashlib.sha256(b"".join(values[pcr] for pcr in sorted(values))).digest()
    head = struct.pack(">IH", magic, kind) + sized(signer) + sized(nonce) + clock
    return head + struct.pack(">QIHB", 0x20200706, 1, bank, 3) + bits + sized(digest)


def zeros() -> Mapping[int, bytes]:
    return dict.fromkeys(QUOTED_PCRS, bytes(32))


def kdf_a(key: bytes, label: bytes, context: bytes, bits: int) -> bytes:
    made = hmac.digest(key, struct.pack(">I", 1) + label + b"\0" + context + struct.pack(">I", bits), "sha256")
    return made[: bits // 8]


def cfb_decrypt(key: bytes, data: bytes) -> bytes:
    """CFB by its definition: the cipher of the block before, laid over this one."""
    cipher, before, plain = Cipher(AES(key), ECB()), bytes(16), b""  # noqa: S305 - of which CFB is made
    for at in range(0, len(data), 16):
        encryptor = cipher.encryptor()
        block = data[at : at + 16]
        plain += bytes(one ^ other for one, other in zip(block, encryptor.update(before), strict=False))
        before = block
    return plain
