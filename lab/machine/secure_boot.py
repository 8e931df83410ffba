"""A site's own Secure Boot keys in a copy of OVMF's variable store, as an administrator enrols them in its setup.

Once a platform key (PK) is there, OVMF starts in user mode and enforces: what is signed by a certificate of `db`, or
stands in it by its digest, runs; what stands in `dbx` never does, by whomever it is signed.
Source: UEFI 2.10, chapter 32.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Final

from lab.machine.variable_store import (
    GLOBAL_VARIABLE,
    NON_VOLATILE_BOOT_RUNTIME,
    Variable,
    append_variables,
)

_IMAGE_SECURITY: Final = uuid.UUID("d719b2cb-3d3a-4596-a3bc-dad00e67656f")
_X509: Final = uuid.UUID("a5c059a1-94e4-4aa7-87b5-ab155c2bf072")
_SHA256: Final = uuid.UUID("c1c41626-504c-4092-aca9-41f936934328")
_OWNER: Final = uuid.UUID("6f1d1c3c-5d6e-4f0e-9c5b-8a4c2f3a7d10")
"""Whose entries they are: a number of our own, of which firmware asks nothing."""
_TIME_BASED_AUTHENTICATED: Final = NON_VOLATILE_BOOT_RUNTIME | 0x20
_LIST_HEADER: Final = struct.Struct("<16sIII")
_TIMESTAMP: Final = struct.pack("<HBBBBBxIhBx", 2026, 1, 1, 0, 0, 0, 0, 0, 0)


def enrol_keys(template: bytes, certificate: bytes, *, revoked: Sequence[str] = ()) -> bytes:
    """`template` (an untouched OVMF_VARS.fd) with this certificate (DER) as PK and KEK and in db, and dbx.

    revoked: Authenticode SHA-256, in hexadecimal, of programs that may not run although they are signed.
    Raises: ValueError, as append_variables.
    """
    trusted = _signature_list(_X509, [certificate])
    variables = [
        _authenticated("PK", trusted, GLOBAL_VARIABLE),
        _authenticated("KEK", trusted, GLOBAL_VARIABLE),
        _authenticated("db", trusted, _IMAGE_SECURITY),
    ]
    if revoked:
        digests = [bytes.fromhex(digest) for digest in revoked]
        variables.append(_authenticated("dbx", _signature_list(_SHA256, digests), _IMAGE_SECURITY))
    return append_variables(template, variables)


def _authenticated(name: str, data: bytes, vendor: uuid.UUID) -> Variable:
    return Variable(name, data, vendor, _TIME_BASED_AUTHENTICATED, _TIMESTAMP)


def _signature_list(kind: uuid.UUID, entries: Sequence[bytes]) -> bytes:
    """EFI_SIGNATURE_LIST: all entries of one list have one size."""
    size = len(_OWNER.bytes_le) + len(entries[0])
    content = b"".join(_OWNER.bytes_le + entry for entry in entries)
    return _LIST_HEADER.pack(kind.bytes_le, _LIST_HEADER.size + len(content), 0, size) + content
