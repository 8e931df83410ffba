"""UEFI boot options written into a copy of OVMF's variable store, as a BMC does it on a real machine.

QEMU can say "boot this NIC first" but not "by HTTP, from this URL"; a Boot#### variable can. Sources: UEFI 2.10,
chapters 3.1.3 (load options), 8.2 (variables) and 10.3 (device paths); EDK2,
MdeModulePkg/Include/Guid/VariableFormat.h.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import Final

from provisioner.api.values import MacAddress

_GLOBAL_VARIABLE: Final = uuid.UUID("8be4df61-93ca-11d2-aa0d-00e098032b8c").bytes_le
_AUTHENTICATED_STORE: Final = uuid.UUID("aaf32c78-947b-439a-a180-2e144ec37792").bytes_le
_FIRMWARE_VOLUME_SIGNATURE: Final = b"_FVH"
_STORE_HEADER: Final = struct.Struct("<16sIBBHI")
_STORE_FORMATTED, _STORE_HEALTHY = 0x5A, 0xFE
_VARIABLE_HEADER: Final = struct.Struct("<HBxIQ16sIII16s")
_VARIABLE_START, _VARIABLE_ADDED = 0x55AA, 0x3F
_NON_VOLATILE_BOOT_RUNTIME: Final = 0x07
_ERASED: Final = b"\xff"
_LOAD_OPTION_ACTIVE: Final = 0x01

NIC_PCI_SLOT: Final = 2
"""Slot on the root bus at which the machine's boot NIC sits; the device paths below name it."""
HOST_PORT_PCI_SLOT: Final = 4
"""Of a DPU's NIC that leads to its host; images/dpu names it by this slot."""


def pxe_option(mac: MacAddress) -> bytes:
    """The load option `PXE by IPv4 on the NIC with this MAC`."""
    return _load_option("PXE", _nic(mac) + _ipv4_by_dhcp())


def http_option(mac: MacAddress, uri: str) -> bytes:
    """The load option `HTTP by IPv4 on the NIC with this MAC, from this URI`; the address still comes by DHCP."""
    return _load_option("HTTP", _nic(mac) + _ipv4_by_dhcp() + _node(3, 24, uri.encode("ascii")))


def write_boot_order(template: bytes, options: Sequence[bytes]) -> bytes:
    """`template` (an untouched OVMF_VARS.fd) with these load options as Boot0000, Boot0001… and their BootOrder.

    Options that the firmware finds by itself come after these. Raises: ValueError if the template is no variable store
    of the authenticated format, or is full.
    """
    if template[40:44] != _FIRMWARE_VOLUME_SIGNATURE:
        raise ValueError("the template is not a firmware volume")
    (start,) = struct.unpack_from("<H", template, 48)
    guid, size, store_format, state, _, _ = _STORE_HEADER.unpack_from(template, start)
    if (guid, store_format, state) != (_AUTHENTICATED_STORE, _STORE_FORMATTED, _STORE_HEALTHY):
        raise ValueError("the template is not a healthy store of authenticated variables")
    variables = {f"Boot{number:04X}": option for number, option in enumerate(options)}
    variables["BootOrder"] = struct.pack(f"<{len(options)}H", *range(len(options)))
    offset = _end_of_variables(template, start + _STORE_HEADER.size)
    appended = bytearray()
    for name, data in variables.items():
        appended += _variable(name, data)
        appended += _ERASED * (-(offset + len(appended)) % 4)
    if offset + len(appended) > start + size:
        raise ValueError("the template has no room for the boot options")
    return template[:offset] + bytes(appended) + template[offset + len(appended) :]


def _end_of_variables(store: bytes, offset: int) -> int:
    while store[offset : offset + 2] == struct.pack("<H", _VARIABLE_START):
        *_, name_size, data_size, _ = _VARIABLE_HEADER.unpack_from(store, offset)
        offset += _VARIABLE_HEADER.size + name_size + data_size
        offset += -offset % 4
    return offset


def _variable(name: str, data: bytes) -> bytes:
    encoded = (name + "\0").encode("utf-16-le")
    header = _VARIABLE_HEADER.pack(
        _VARIABLE_START,
        _VARIABLE_ADDED,
        _NON_VOLATILE_BOOT_RUNTIME,
        0,
        bytes(16),
        0,
        len(encoded),
        len(data),
        _GLOBAL_VARIABLE,
    )
    return header + encoded + data


def _load_option(description: str, path: bytes) -> bytes:
    path += _node(0x7F, 0xFF, b"")
    return struct.pack("<IH", _LOAD_OPTION_ACTIVE, len(path)) + (description + "\0").encode("utf-16-le") + path


def _nic(mac: MacAddress) -> bytes:
    root_bridge = _node(2, 1, struct.pack("<II", 0x0A0341D0, 0))  # PNP0A03, the first one
    pci = _node(1, 1, bytes([0, NIC_PCI_SLOT]))
    return root_bridge + pci + _node(3, 11, bytes.fromhex(mac.replace(":", "")).ljust(32, b"\0") + b"\x01")


def _ipv4_by_dhcp() -> bytes:
    return _node(3, 12, bytes(23))


def _node(type_: int, subtype: int, data: bytes) -> bytes:
    return struct.pack("<BBH", type_, subtype, 4 + len(data)) + data
