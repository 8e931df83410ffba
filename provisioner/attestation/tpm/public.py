"""TPMT_PUBLIC: what a TPM says of a key. Its Name is a digest over it, by which a credential is bound to the key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from provisioner.attestation.tpm.algorithms import Algorithm, Attribute, Curve, name_of
from provisioner.attestation.tpm.wire import MalformedTpmData, StructureReader, sized, uint16, uint32

LARGEST_PUBLIC_BYTES: Final = 1024
_RSA_DEFAULT_EXPONENT: Final = 65537
_RSA_SIZES: Final = (2048, 3072, 4096)
_MOST_POLICY_BYTES: Final = 64
_MOST_COORDINATE_BYTES: Final = 66
_CURVES: Final[dict[int, ec.EllipticCurve]] = {Curve.NIST_P256: ec.SECP256R1(), Curve.NIST_P384: ec.SECP384R1()}

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey


@dataclass(frozen=True)
class Symmetric:
    """TPMT_SYM_DEF_OBJECT: how a storage key protects its children. algorithm NULL: it has none."""

    algorithm: int
    key_bits: int = 0
    mode: int = 0

    def marshal(self) -> bytes:
        if self.algorithm == Algorithm.NULL:
            return uint16(self.algorithm)
        return uint16(self.algorithm) + uint16(self.key_bits) + uint16(self.mode)


@dataclass(frozen=True)
class Scheme:
    """TPMT_RSA_SCHEME or TPMT_ECC_SCHEME: the one way in which a key signs. algorithm NULL: it is not fixed."""

    algorithm: int
    hash: int = 0

    def marshal(self) -> bytes:
        if self.algorithm in (Algorithm.NULL, Algorithm.RSAES):
            return uint16(self.algorithm)
        return uint16(self.algorithm) + uint16(self.hash)


@dataclass(frozen=True)
class RsaPart:
    """TPMS_RSA_PARMS and the modulus. exponent: 0 stands for 65537, as on the wire."""

    symmetric: Symmetric
    scheme: Scheme
    key_bits: int
    exponent: int
    modulus: bytes


@dataclass(frozen=True)
class EccPart:
    """TPMS_ECC_PARMS and the point. x, y: as on the wire, which may leave leading zeros out."""

    symmetric: Symmetric
    scheme: Scheme
    curve: int
    kdf: Scheme
    x: bytes
    y: bytes


@dataclass(frozen=True)
class PublicArea:
    """TPMT_PUBLIC of an RSA or ECC key."""

    name_algorithm: int
    attributes: Attribute
    auth_policy: bytes
    part: RsaPart | EccPart

    @cached_property
    def marshalled(self) -> bytes:
        """The bytes that were parsed: every accepted structure has one spelling."""
        part = self.part
        kind = Algorithm.RSA if isinstance(part, RsaPart) else Algorithm.ECC
        head = uint16(kind) + uint16(self.name_algorithm) + uint32(self.attributes) + sized(self.auth_policy)
        head += part.symmetric.marshal() + part.scheme.marshal()
        if isinstance(part, RsaPart):
            return head + uint16(part.key_bits) + uint32(part.exponent) + sized(part.modulus)
        return head + uint16(part.curve) + part.kdf.marshal() + sized(part.x) + sized(part.y)

    def name(self) -> bytes:
        """The Name of Part 1, section 16: algorithm and digest of the public area.

        Raises: MalformedTpmData unless the name algorithm is SHA-256, the one that is used here.
        """
        if self.name_algorithm != Algorithm.SHA256:
            raise MalformedTpmData(f"the key's name algorithm is {name_of(self.name_algorithm)}, expected SHA256")
        return uint16(self.name_algorithm) + hashlib.sha256(self.marshalled).digest()

    @cached_property
    def public_key(self) -> PublicKey:
        """The key for cryptography. Raises: MalformedTpmData if it is no key (a point beside the curve)."""
        part = self.part
        try:
            if isinstance(part, RsaPart):
                modulus = int.from_bytes(part.modulus, "big")
                return rsa.RSAPublicNumbers(part.exponent or _RSA_DEFAULT_EXPONENT, modulus).public_key()
            x, y = int.from_bytes(part.x, "big"), int.from_bytes(part.y, "big")
            return ec.EllipticCurvePublicNumbers(x, y, _CURVES[part.curve]).public_key()
        except (ValueError, KeyError) as error:
            raise MalformedTpmData(f"the public area holds no valid key ({error})") from error


def parse_public(data: bytes) -> PublicArea:
    """A whole TPMT_PUBLIC of at most LARGEST_PUBLIC_BYTES. Raises: MalformedTpmData."""
    if len(data) > LARGEST_PUBLIC_BYTES:
        raise MalformedTpmData(f"the public area has {len(data)} bytes, at most {LARGEST_PUBLIC_BYTES} are expected")
    reader = StructureReader(data, "the public area")
    kind, name_algorithm, attributes = reader.uint16(), reader.uint16(), reader.uint32()
    policy = reader.sized(_MOST_POLICY_BYTES)
    if kind == Algorithm.RSA:
        part: RsaPart | EccPart = _read_rsa(reader)
    elif kind == Algorithm.ECC:
        part = _read_ecc(reader)
    else:
        raise MalformedTpmData(f"the public area is of type {name_of(kind)}, expected RSA or ECC")
    reader.end()
    return PublicArea(name_algorithm, Attribute(attributes), policy, part)


def _read_rsa(reader: StructureReader) -> RsaPart:
    symmetric, scheme = _read_symmetric(reader), _read_scheme(reader)
    key_bits, exponent = reader.uint16(), reader.uint32()
    if key_bits not in _RSA_SIZES:
        raise MalformedTpmData(f"the RSA key has {key_bits} bits, expected 2048, 3072 or 4096")
    modulus = reader.sized(key_bits // 8)
    if len(modulus) * 8 != key_bits or modulus[0] < 0x80 or not modulus[-1] & 1:
        raise MalformedTpmData(f"the RSA modulus of {len(modulus)} bytes is no odd number of {key_bits} bits")
    if exponent not in (0, _RSA_DEFAULT_EXPONENT):
        raise MalformedTpmData(f"the RSA exponent is {exponent}, expected 0, which stands for 65537")
    return RsaPart(symmetric, scheme, key_bits, exponent, modulus)


def _read_ecc(reader: StructureReader) -> EccPart:
    symmetric, scheme = _read_symmetric(reader), _read_scheme(reader)
    curve = reader.uint16()
    if curve not in _CURVES:
        raise MalformedTpmData(f"the ECC curve is 0x{curve:04x}, expected NIST P-256 or P-384")
    kdf = _read_scheme(reader)
    return EccPart(
        symmetric, scheme, curve, kdf, reader.sized(_MOST_COORDINATE_BYTES), reader.sized(_MOST_COORDINATE_BYTES)
    )


def _read_symmetric(reader: StructureReader) -> Symmetric:
    algorithm = reader.uint16()
    if algorithm == Algorithm.NULL:
        return Symmetric(algorithm)
    if algorithm != Algorithm.AES:
        raise MalformedTpmData(f"the symmetric algorithm is {name_of(algorithm)}, expected AES or NULL")
    return Symmetric(algorithm, reader.uint16(), reader.uint16())


def _read_scheme(reader: StructureReader) -> Scheme:
    algorithm = reader.uint16()
    if algorithm in (Algorithm.NULL, Algorithm.RSAES):
        return Scheme(algorithm)
    if algorithm not in (Algorithm.RSASSA, Algorithm.RSAPSS, Algorithm.OAEP, Algorithm.ECDSA, Algorithm.ECDH):
        raise MalformedTpmData(f"the scheme is {name_of(algorithm)}, which is none of an attestation's keys")
    return Scheme(algorithm, reader.uint16())
