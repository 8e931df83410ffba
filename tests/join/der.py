"""DER, taken apart and put together as no library does it, for requests that a forger makes."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from math import lcm

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

KEY = ec.derive_private_key(0x5EED, ec.SECP256R1())
"""The same each time, so that what is made of it is, too."""
_ECDSA_SHA256 = bytes.fromhex("300a06082a8648ce3d040302")

EXTENSION_REQUEST = bytes.fromhex("06092a864886f70d01090e")
ALTERNATIVE_NAME = bytes.fromhex("0603551d11")
COMMON_NAME = bytes.fromhex("0603550403")
TLS_FEATURE = bytes.fromhex("06082b06010505070118")
AUTHORITY_INFORMATION = bytes.fromhex("06082b06010505070101")
OCSP = bytes.fromhex("06082b06010505073001")


def tlv(tag: int, content: bytes) -> bytes:
    """Tag, length, content."""
    size = len(content)
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    length = bytes([size]) if size < 128 else bytes([0x80 | len(octets)]) + octets
    return bytes([tag]) + length + content


X400_ADDRESS = tlv(0xA3, tlv(0x30, b""))
EDI_PARTY_NAME = tlv(0xA5, tlv(0xA1, tlv(0x0C, b"x")))


def parts(der: bytes) -> list[bytes]:
    """The elements that stand one behind the other, each whole."""
    found = []
    while der:
        size, skip = der[1], 2
        if size & 0x80:
            skip += size & 0x7F
            size = int.from_bytes(der[2:skip], "big")
        found.append(der[: skip + size])
        der = der[skip + size :]
    return found


def content(der: bytes) -> bytes:
    return der[2 + (der[1] & 0x7F if der[1] & 0x80 else 0) :]


@dataclass(frozen=True)
class Parts:
    """The signed part of a request: version, subject, key, attributes, each whole."""

    version: bytes
    subject: bytes
    key: bytes
    attributes: bytes

    @classmethod
    def of(cls, pem: bytes) -> Parts:
        return cls(*parts(content(x509.load_pem_x509_csr(pem).tbs_certrequest_bytes)))

    def whole(self) -> bytes:
        """With KEY in place of the key."""
        ours = KEY.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return tlv(0x30, self.version + self.subject + ours + self.attributes)


def extensions(*pairs: tuple[bytes, bytes]) -> bytes:
    """The attributes of a request that asks for these extensions: object id and value."""
    listed = b"".join(tlv(0x30, oid + tlv(0x04, value)) for oid, value in pairs)
    return tlv(0xA0, tlv(0x30, EXTENSION_REQUEST + tlv(0x31, tlv(0x30, listed))))


def signed(tbs: bytes) -> bytes:
    """The PEM of a request whose signed part is `tbs`, by KEY."""
    signature = tlv(0x03, b"\0" + KEY.sign(tbs, ec.ECDSA(hashes.SHA256())))
    return armoured(tlv(0x30, tbs + _ECDSA_SHA256 + signature))


def armoured(der: bytes) -> bytes:
    body = base64.encodebytes(der)
    return b"-----BEGIN CERTIFICATE REQUEST-----\n" + body + b"-----END CERTIFICATE REQUEST-----\n"


def key_that_hides(hidden: bytes) -> rsa.RSAPrivateKey:
    """An RSA key that any parser takes, whose modulus begins with 0xC0 and `hidden`: p is 2^2203-1, q those bytes."""
    p, spare_bits = (1 << 2203) - 1, 21  # together whole bytes
    first = int.from_bytes(b"\xc0" + hidden) << spare_bits | 1
    q = next(odd for odd in range(first, first + (1 << spare_bits), 2) if pow(2, odd - 1, odd) == 1)
    d = pow(65537, -1, lcm(p - 1, q - 1))
    crt = rsa.rsa_crt_dmp1(d, p), rsa.rsa_crt_dmq1(d, q), rsa.rsa_crt_iqmp(p, q)
    public = rsa.RSAPublicNumbers(65537, p * q)
    return rsa.RSAPrivateNumbers(p, q, d, *crt, public).private_key(unsafe_skip_rsa_key_validation=True)
