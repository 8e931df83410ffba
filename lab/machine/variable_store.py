"""Variables written into a copy of OVMF's variable store while no firmware runs, as a factory does it.

Sources: UEFI 2.10, chapter 8.2 (variables); EDK2, MdeModulePkg/Include/Guid/VariableFormat.h.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

GLOBAL_VARIABLE: Final = uuid.UUID("8be4df61-93ca-11d2-aa0d-00e098032b8c")
NON_VOLATILE_BOOT_RUNTIME: Final = 0x07
_AUTHENTICATED_STORE: Final = uuid.UUID("aaf32c78-947b-439a-a180-2e144ec37792").bytes_le
_FIRMWARE_VOLUME_SIGNATURE: Final = b"_FVH"
_STORE_HEADER: Final = struct.Struct("<16sIBBHI")
_STORE_FORMATTED, _STORE_HEALTHY = 0x5A, 0xFE
_VARIABLE_HEADER: Final = struct.Struct("<HBxIQ16sIII16s")
_VARIABLE_START, _VARIABLE_ADDED = 0x55AA, 0x3F
_ERASED: Final = b"\xff"


@dataclass(frozen=True)
class Variable:
    """One variable of UEFI. `timestamp`: EFI_TIME of an authenticated one, zeros of any other."""

    name: str
    data: bytes
    vendor: uuid.UUID = GLOBAL_VARIABLE
    attributes: int = NON_VOLATILE_BOOT_RUNTIME
    timestamp: bytes = bytes(16)

    def encode(self) -> bytes:
        name = (self.name + "\0").encode("utf-16-le")
        header = _VARIABLE_HEADER.pack(
            *(_VARIABLE_START, _VARIABLE_ADDED, self.attributes, 0, self.timestamp, 0),
            *(len(name), len(self.data), self.vendor.bytes_le),
        )
        return header + name + self.data


def append_variables(template: bytes, variables: Sequence[Variable]) -> bytes:
    """`template` (such as an untouched OVMF_VARS.fd) with these variables behind those that it has.

    Raises: ValueError if the template is no variable store of the authenticated format, or is full.
    """
    if template[40:44] != _FIRMWARE_VOLUME_SIGNATURE:
        raise ValueError("the template is not a firmware volume")
    (start,) = struct.unpack_from("<H", template, 48)
    guid, size, store_format, state, _, _ = _STORE_HEADER.unpack_from(template, start)
    if (guid, store_format, state) != (_AUTHENTICATED_STORE, _STORE_FORMATTED, _STORE_HEALTHY):
        raise ValueError("the template is not a healthy store of authenticated variables")
    offset = _end_of_variables(template, start + _STORE_HEADER.size)
    appended = bytearray()
    for variable in variables:
        appended += variable.encode()
        appended += _ERASED * (-(offset + len(appended)) % 4)
    if offset + len(appended) > start + size:
        raise ValueError(f"the template has no room for {', '.join(variable.name for variable in variables)}")
    return template[:offset] + bytes(appended) + template[offset + len(appended) :]


def _end_of_variables(store: bytes, offset: int) -> int:
    while store[offset : offset + 2] == struct.pack("<H", _VARIABLE_START):
        *_, name_size, data_size, _ = _VARIABLE_HEADER.unpack_from(store, offset)
        offset += _VARIABLE_HEADER.size + name_size + data_size
        offset += -offset % 4
    return offset
