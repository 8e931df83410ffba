"""Numbers of TPM 2.0 Library Part 2 that are used here, with the words for them."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final

SHA256_BYTES: Final = 32
PCR_COUNT: Final = 24
"""Of a PC Client TPM."""


class Algorithm(IntEnum):
    """TPM_ALG_ID."""

    RSA = 0x0001
    SHA1 = 0x0004
    HMAC = 0x0005
    AES = 0x0006
    MGF1 = 0x0007
    KEYEDHASH = 0x0008
    SHA256 = 0x000B
    SHA384 = 0x000C
    SHA512 = 0x000D
    NULL = 0x0010
    RSASSA = 0x0014
    RSAES = 0x0015
    RSAPSS = 0x0016
    OAEP = 0x0017
    ECDSA = 0x0018
    ECDH = 0x0019
    ECC = 0x0023
    CFB = 0x0043


class Curve(IntEnum):
    """TPM_ECC_CURVE."""

    NIST_P256 = 0x0003
    NIST_P384 = 0x0004


class Attribute(IntFlag):
    """TPMA_OBJECT."""

    FIXED_TPM = 1 << 1
    FIXED_PARENT = 1 << 4
    SENSITIVE_DATA_ORIGIN = 1 << 5
    USER_WITH_AUTH = 1 << 6
    ADMIN_WITH_POLICY = 1 << 7
    ENCRYPTED_DUPLICATION = 1 << 11
    RESTRICTED = 1 << 16
    DECRYPT = 1 << 17
    SIGN_ENCRYPT = 1 << 18
    X509_SIGN = 1 << 19


def name_of(algorithm: int) -> str:
    """`SHA256`, or the number where it is not one of those above."""
    try:
        return Algorithm(algorithm).name
    except ValueError:
        return f"0x{algorithm:04x}"
