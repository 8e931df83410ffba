"""Certificates that vendors have burnt into TPMs, and those of their authorities: read leniently, judged strictly.

Many are not quite DER: Nuvoton's names have sets out of order, Intel's extensions write defaults out, old ones name the
key RSAES-OAEP. Such a certificate is read from a copy in DER, with the same content; its signature is over what the
vendor wrote. Left out of the copy is what nobody judges: the serial number, and extensions that are neither critical
nor looked at. Source: ITU-T X.690; RFC 5280.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

UNREADABLE: Final = (
    ValueError,
    TypeError,
    OverflowError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""What is raised for a certificate that cannot be read."""
LOOKED_AT: Final = (x509.BasicConstraints, x509.KeyUsage, x509.ExtendedKeyUsage, x509.SubjectAlternativeName)

_BOOLEAN, _INTEGER, _BITS, _OCTETS, _NULL, _OID, _UTC, _GENERAL = 1, 2, 3, 4, 5, 6, 0x17, 0x18
_SEQUENCE, _SET, _VERSION, _EXTENSIONS = 0x30, 0x31, 0xA0, 0xA3
_DEEPEST: Final = 24
_BASIC_CONSTRAINTS: Final = bytes.fromhex("551d13")
_JUDGED: Final = frozenset({_BASIC_CONSTRAINTS, *(bytes.fromhex(oid) for oid in ("551d0f", "551d25", "551d11"))})
_RSA: Final = bytes.fromhex("2a864886f70d010101")
_RSA_NAMES: Final = frozenset({_RSA, bytes.fromhex("2a864886f70d010107")})
"""rsaEncryption, and RSAES-OAEP, which is the same key."""
_RSA_SIGNATURES: Final = frozenset(bytes.fromhex(f"2a864886f70d0101{last:02x}") for last in (4, 5, 11, 12, 13, 14))
_TIME: Final = re.compile(r"(\d{10}(?:\d\d){0,2})(?:[.,]\d+)?(Z|[+-]\d{4})")


@dataclass(frozen=True)
class VendorCertificate:
    """`read` is in DER; `signed` and `signature` are as the vendor wrote them."""

    read: x509.Certificate
    signed: bytes
    signature: bytes

    def is_signed_by(self, issuer: x509.Certificate) -> bool:
        """Whether the issuer's key has made the signature; nothing is said of whether it might."""
        key, digest = issuer.public_key(), self.read.signature_hash_algorithm
        parameters = self.read.signature_algorithm_parameters
        try:
            if isinstance(key, rsa.RSAPublicKey) and digest is not None:
                key.verify(self.signature, self.signed, parameters, digest)  # type: ignore[arg-type]  # or TypeError
            elif isinstance(key, ec.EllipticCurvePublicKey) and isinstance(parameters, ec.ECDSA):
                key.verify(self.signature, self.signed, parameters)
            else:
                return False
        except (InvalidSignature, TypeError, ValueError, AttributeError):
            return False
        return True


def read_certificate(der: bytes) -> VendorCertificate:
    """What lies behind its end is left out: memory may have more room than a certificate needs. Raises: UNREADABLE."""
    whole, _ = _read(der, 0)
    parts = _children(whole)
    if len(parts) != 3 or parts[2].tag != _BITS or parts[2].body[:1] != b"\0":
        raise ValueError("it is not made of content, algorithm and signature")
    content, algorithm, signature = parts
    fields = _children(content)
    has_version = bool(fields) and fields[0].tag == _VERSION
    if len(fields) < 6 + has_version:
        raise ValueError("its content has too few fields")
    if _algorithm(fields[1 + has_version]) != _algorithm(algorithm):
        raise ValueError("it names one algorithm in its content, and another for its signature")
    try:
        read = x509.load_der_x509_certificate(whole.raw)
        _ask_all(read)
    except UNREADABLE:
        read = x509.load_der_x509_certificate(_in_der(fields[has_version:], signature))
        _ask_all(read)
    return VendorCertificate(read, content.raw, signature.body[1:])


def _ask_all(certificate: x509.Certificate) -> None:
    """cryptography reads a field when it is asked for."""
    certificate.public_key()
    for field in ("subject", "issuer", "extensions", "not_valid_before_utc", "not_valid_after_utc"):
        getattr(certificate, field)


class _Value(NamedTuple):
    tag: int
    body: bytes
    raw: bytes


def _read(data: bytes, at: int) -> tuple[_Value, int]:
    """One value with a length of any form but the indefinite one, and where it ends."""
    head = data[at : at + 2]
    if len(head) < 2 or head[0] & 0x1F == 0x1F:
        raise ValueError("it ends within a value, or has a tag of several bytes")
    begin, size = at + 2, head[1]
    if size & 0x80:
        begin, size = begin + (size & 0x7F), int.from_bytes(data[begin : begin + (size & 0x7F)], "big")
        if head[1] == 0x80:
            raise ValueError("a value has no definite length")
    if begin + size > len(data):
        raise ValueError("it ends within a value")
    return _Value(head[0], data[begin : begin + size], data[at : begin + size]), begin + size


def _children(value: _Value) -> list[_Value]:
    found, at = [], 0
    while at < len(value.body):
        inner, at = _read(value.body, at)
        found.append(inner)
    return found


def _write(tag: int, *body: bytes) -> bytes:
    content = b"".join(body)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def _canonical(value: _Value, depth: int = 0) -> bytes:
    """The same in DER."""
    if depth > _DEEPEST:
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    tag, body = value.tag, value.body
    if tag & 0x20:
        inner = [_canonical(each, depth + 1) for each in _children(value)]
        return _write(tag, *(sorted(inner) if tag == _SET else inner))
    if tag == _BOOLEAN:
        return _write(tag, b"\xff" if any(body) else b"\0")
    if tag == _INTEGER:
        number = int.from_bytes(body, "big", signed=True)
        return _write(tag, number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))
    if tag == _BITS and body and body[0] < 8 and len(body) > 1:
        return _write(tag, body[:-1], bytes((body[-1] & 0xFF << body[0] & 0xFF,)))
    return _write(tag, body)


def _in_der(fields: Sequence[_Value], signature: _Value) -> bytes:
    """The whole certificate, of what is in its content behind the version."""
    _serial, algorithm, issuer, validity, subject, key, *more = fields
    extensions = [_extension(each) for block in more if block.tag == _EXTENSIONS for each in _entries(block)]
    kept = [each for each in extensions if each]
    rewritten = _write(
        _SEQUENCE,
        _write(_VERSION, _write(_INTEGER, b"\2")) if kept else b"",
        _write(_INTEGER, b"\1"),
        _algorithm(algorithm),
        _canonical(issuer),
        _write(_SEQUENCE, *(_time(each) for each in _children(validity))),
        _canonical(subject),
        _key(key),
        _write(_EXTENSIONS, _write(_SEQUENCE, *kept)) if kept else b"",
    )
    return _write(_SEQUENCE, rewritten, _algorithm(algorithm), _write(_BITS, signature.body))


def _algorithm(value: _Value) -> bytes:
    """RSA has NULL for its parameters, which some leave out."""
    parts = _children(value)
    if parts and parts[0].body in _RSA_SIGNATURES:
        return _write(_SEQUENCE, _write(_OID, parts[0].body), _write(_NULL))
    return _canonical(value)


def _key(value: _Value) -> bytes:
    algorithm, key = _two(_children(value))
    name = _children(algorithm)[:1]
    if not name or name[0].body not in _RSA_NAMES:
        return _canonical(value)
    numbers, _ = _read(key.body, 1)
    modulus, exponent = _two(_children(numbers))
    # A modulus is positive, with or without the zero that says so.
    written = [_canonical(_Value(_INTEGER, b"\0" + each.body, b"")) for each in (modulus, exponent)]
    return _write(
        _SEQUENCE,
        _write(_SEQUENCE, _write(_OID, _RSA), _write(_NULL)),
        _write(_BITS, b"\0", _write(_SEQUENCE, *written)),
    )


def _entries(block: _Value) -> list[_Value]:
    (listed,) = _children(block)
    return _children(listed)


def _extension(value: _Value) -> bytes:
    """Nothing of one that is neither critical nor looked at."""
    name, *flags, content = _children(value)
    is_critical = any(any(flag.body) for flag in flags)
    if name.body not in _JUDGED:
        return _write(_SEQUENCE, name.raw, _write(_BOOLEAN, b"\xff"), content.raw) if is_critical else b""
    inner, _ = _read(content.body, 0)
    if name.body == _BASIC_CONSTRAINTS:
        kept = [each for each in _children(inner) if each.tag != _BOOLEAN or any(each.body)]
        written = _write(_SEQUENCE, *map(_canonical, kept))
    else:
        written = _canonical(inner)
    critical = _write(_BOOLEAN, b"\xff") if is_critical else b""
    return _write(_SEQUENCE, _write(_OID, name.body), critical, _write(_OCTETS, written))


def _time(value: _Value) -> bytes:
    """In UTC, with seconds; up to 2049 with two digits of the year."""
    match = _TIME.fullmatch(value.body.decode("ascii", "replace"))
    if match is None or value.tag not in (_UTC, _GENERAL):
        raise ValueError(f"{value.body[:20]!r} is no time")
    digits, zone = match.groups()
    if value.tag == _UTC:
        digits = ("19" if int(digits[:2]) >= 50 else "20") + digits
    moment = datetime.strptime(digits.ljust(14, "0"), "%Y%m%d%H%M%S")
    if zone != "Z":
        away = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:]))
        moment += -away if zone[0] == "+" else away
    written = moment.strftime("%Y%m%d%H%M%SZ").zfill(15).encode()
    return _write(_UTC, written[2:]) if 1950 <= moment.year < 2050 else _write(_GENERAL, written)


def _two(values: Sequence[_Value]) -> tuple[_Value, _Value]:
    first, second = values
    return first, second
