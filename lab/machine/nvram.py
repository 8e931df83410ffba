"""UEFI boot options written into a copy of OVMF's variable store, as a BMC does it on a real machine.

QEMU can say "boot this NIC first" but not "by HTTP, from this URL"; a Boot#### variable can. Sources: UEFI 2.10,
chapters 3.1.3 (load options) and 10.3 (device paths).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from lab.machine.variable_store import Variable, append_variables
from provisioner.api.machinery.values import MacAddress

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
    variables = [Variable(f"Boot{number:04X}", option) for number, option in enumerate(options)]
    order = struct.pack(f"<{len(options)}H", *range(len(options)))
    return append_variables(template, [*variables, Variable("BootOrder", order)])


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
