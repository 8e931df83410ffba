"""Small value types: what a string must look like before the rest of the code sees it."""

from __future__ import annotations

import hmac
import re
import unicodedata
from typing import Generic, NewType, TypeVar

from provisioner.api.machinery.errors import Refused

S = TypeVar("S", str, bytes)

MacAddress = NewType("MacAddress", str)
"""Lower-case, colon-separated: `52:54:00:12:34:56`."""

Sha256Digest = NewType("Sha256Digest", str)
"""`sha256:` and 64 lower-case hexadecimal digits."""

MAC_PATTERN = r"^([0-9a-f]{2}:){5}[0-9a-f]{2}$"
DIGEST_PATTERN = r"^sha256:[0-9a-f]{64}$"

_MAC_SEPARATORS = re.compile(r"[:\-._\s\u00ad\u00b7\u2010-\u2015\u2212\u2236\ua789]")
"""Beside those of vendors, what word processors and web pages make of a hyphen and a colon."""
_TWELVE_HEX_DIGITS = re.compile(r"^[0-9a-f]{12}$")
_GUID = re.compile(r"(0x)?[0-9a-f]{16}", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_PLACEHOLDER_SERIALS = re.compile(
    r"to be filled( by o\.?e\.?m\.?)?|default( string)?|oem|o\.e\.m\.|none|null|n/?a|unknown|invalid|empty|"
    r"not (specified|available|applicable|provided|present|settable)|0?123456789(0|abcdef)?|"
    r"((chassis|system|base ?board|product|node) )?serial( ?number| ?no\.?)?|0|(?P<same>[0x.*#?_ -])(?P=same)+",
    re.IGNORECASE,
)
_PLACEHOLDER_UUIDS = frozenset(
    {
        "not settable",
        "not present",
        "fefefefe-fefe-fefe-fefe-fefefefefefe",
        "03000200-0400-0500-0006-000700080009",
        "00020003-0004-0005-0006-000700080009",
        "03020100-0504-0706-0809-0a0b0c0d0e0f",
        "00010203-0405-0607-0809-0a0b0c0d0e0f",
        "11111111-2222-3333-4444-555555555555",
        "12345678-1234-5678-90ab-cddeefaabbcc",
        "12345678-1234-1234-1234-123456789abc",
        "12345678-90ab-cdef-1234-567890abcdef",
    }
)


def is_placeholder_serial(text: str) -> bool:
    """Whether it is what a vendor's firmware has in place of a serial number, which many machines have."""
    return _PLACEHOLDER_SERIALS.fullmatch(text.strip()) is not None


def is_placeholder_uuid(uuid: str) -> bool:
    """The same of a system UUID; in either byte order."""
    is_one_digit = _UUID.fullmatch(uuid.lower()) is not None and len(set(uuid) - {"-"}) == 1
    return is_one_digit or bool({uuid.lower(), normal_system_uuid(uuid)} & _PLACEHOLDER_UUIDS)


def _without_invisible(text: str) -> str:
    return "".join(char for char in text if unicodedata.category(char) != "Cf")


def parse_mac(text: str) -> MacAddress:
    """Read a MAC address as vendors write it (`52-54-00-12-34-56`, `5254.0012.3456`, upper case).

    Raises: Refused if it is not six bytes, or is a multicast or all-zero address.
    """
    plain = text if text.isascii() else _without_invisible(unicodedata.normalize("NFKC", text))
    digits = _MAC_SEPARATORS.sub("", plain.strip()).lower()
    if _GUID.fullmatch(digits):
        raise Refused(
            f"MAC address {text!r} is eight bytes, as the GUID of an InfiniBand port",
            hint="write the MAC address of its Ethernet or BlueField port, by which it boots",
        )
    if not _TWELVE_HEX_DIGITS.match(digits):
        raise Refused(f"MAC address {text!r} is not six bytes", hint="write it as 52:54:00:12:34:56")
    if int(digits[:2], 16) & 1 or digits == "0" * 12:
        raise Refused(f"MAC address {text!r} is not a station's address", hint="use the address of the boot interface")
    return MacAddress(":".join(digits[i : i + 2] for i in range(0, 12, 2)))


def parse_digest(text: str) -> Sha256Digest:
    """Read `sha256:<64 hex digits>`. Raises: Refused on anything else."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
        raise Refused(
            f"digest {text!r} is not sha256 with 64 hexadecimal digits", hint="copy it from the image manifest"
        )
    return Sha256Digest(text)


def normal_system_uuid(uuid: str) -> str:
    """One spelling, in lower case, for the two in which a machine's SMBIOS UUID is told; what is no UUID keeps its own.

    Firmware before SMBIOS 2.6 and some BMCs write the first three fields in the other byte order, so what was
    registered (from a BMC or a packing list) and what the kernel says may differ in that.
    """
    told = uuid.lower()
    if not _UUID.fullmatch(told):
        return told
    first, second, third, rest = told.split("-", 3)
    swapped = (bytes.fromhex(part)[::-1].hex() for part in (first, second, third))
    return min(told, "-".join((*swapped, rest)))


class _Hidden(Generic[S]):
    """Never shows itself: `repr` and `str` are `***`; comparison takes constant time."""

    __slots__ = ("_value",)

    def __init__(self, value: S) -> None:
        self._value: S = value

    def reveal(self) -> S:
        """The secret itself, for the one place that must use or send it."""
        return self._value

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and hmac.compare_digest(self._bytes(), other._bytes())

    def __hash__(self) -> int:
        return hash((type(self), self._value))

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(f"{type(self).__name__} is not pickled")

    def _bytes(self) -> bytes:
        return self._value.encode() if isinstance(self._value, str) else self._value


class Secret(_Hidden[str]):
    """A string that never shows itself."""

    __slots__ = ()


class SecretBytes(_Hidden[bytes]):
    """Bytes that never show themselves."""

    __slots__ = ()
