"""EFI device paths, as UEFI's text has them, of the nodes that a network boot meets."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from provisioner.attestation.tpm.wire import MalformedTpmData, StructureReader

MOST_NODES: Final = 32


def device_path_words(path: bytes) -> str:
    """`PciRoot(0x0)/Pci(0x3,0x0)/MAC(525400123456)`: nodes that are not known are told by their numbers.

    Raises: MalformedTpmData if a node is shorter than it says.
    """
    reader = StructureReader(path, "the device path", order="little")
    words: list[str] = []
    while reader.left and len(words) < MOST_NODES:
        kind, part = reader.uint8(), reader.uint8()
        if (size := reader.uint16()) < 4:
            raise MalformedTpmData(f"a node of the device path has {size} bytes, expected at least 4")
        body = reader.take(size - 4)
        if kind == 0x7F:
            break
        known = _NODES.get((kind, part))
        words.append(
            known(StructureReader(body, "a node of the device path", order="little")) if known else f"({kind},{part})"
        )
    return "/".join(words)


def _acpi(node: StructureReader) -> str:
    hid, uid = node.uint32(), node.uint32()
    return f"PciRoot(0x{uid:x})" if hid in (0x0A0341D0, 0x0A0841D0) else f"Acpi(0x{hid:x},0x{uid:x})"


def _pci(node: StructureReader) -> str:
    function, device = node.uint8(), node.uint8()
    return f"Pci(0x{device:x},0x{function:x})"


def _mac(node: StructureReader) -> str:
    return f"MAC({node.take(6).hex()})"


def _ipv4(node: StructureReader) -> str:
    node.take(4)
    return f"IPv4({ipaddress.IPv4Address(node.take(4))})"


def _ipv6(node: StructureReader) -> str:
    node.take(16)
    return f"IPv6({ipaddress.IPv6Address(node.take(16))})"


def _uri(node: StructureReader) -> str:
    return f"Uri({_text(node.take(node.left).decode('ascii', 'replace'))})"


def _file(node: StructureReader) -> str:
    return _text(node.take(node.left).decode("utf-16-le", "replace"))


def _volume(name: str) -> Callable[[StructureReader], str]:
    return lambda node: f"{name}({UUID(bytes_le=node.take(16))})"


def _offsets(node: StructureReader) -> str:
    node.take(4)
    return f"Offset(0x{node.uint64():x},0x{node.uint64():x})"


def _text(text: str) -> str:
    return "".join(each if each.isascii() and each.isprintable() else "?" for each in text.partition("\0")[0][:128])


_NODES: Final[Mapping[tuple[int, int], Callable[[StructureReader], str]]] = {
    (1, 1): _pci,
    (2, 1): _acpi,
    (3, 11): _mac,
    (3, 12): _ipv4,
    (3, 13): _ipv6,
    (3, 24): _uri,
    (4, 4): _file,
    (4, 6): _volume("FvFile"),
    (4, 7): _volume("Fv"),
    (4, 8): _offsets,
}
