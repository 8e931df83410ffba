"""Boot options in a variable store, read back by an independent reader after the UEFI specification."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path

import pytest

from lab.machine.machine import BOARDS, nvram
from lab.tools import ARM64_PACKAGES, PACKAGES
from provisioner.api.machinery.values import parse_mac
from provisioner.api.servers.server import Architecture
from tests.tools import lab_tools

MAC = parse_mac("52:54:00:12:34:56")
HEADER_BYTES = 72
STORE_BYTES = 4096


def empty_store() -> bytes:
    """A firmware volume with an empty store of authenticated variables, as OVMF's template begins."""
    volume = bytearray(b"\xff" * (HEADER_BYTES + STORE_BYTES))
    volume[:HEADER_BYTES] = bytes(HEADER_BYTES)
    volume[40:44] = b"_FVH"
    struct.pack_into("<H", volume, 48, HEADER_BYTES)
    guid = uuid.UUID("aaf32c78-947b-439a-a180-2e144ec37792").bytes_le
    struct.pack_into("<16sIBBHI", volume, HEADER_BYTES, guid, STORE_BYTES, 0x5A, 0xFE, 0, 0)
    return bytes(volume)


def read_variables(volume: bytes) -> dict[str, bytes]:
    """Names and contents of the variables of a store."""
    (offset,) = struct.unpack_from("<H", volume, 48)
    offset += 28
    found = {}
    while volume[offset : offset + 2] == b"\xaa\x55":
        name_size, data_size = struct.unpack_from("<II", volume, offset + 36)
        name = volume[offset + 60 : offset + 60 + name_size].decode("utf-16-le").rstrip("\0")
        found[name] = volume[offset + 60 + name_size : offset + 60 + name_size + data_size]
        offset += (60 + name_size + data_size + 3) // 4 * 4
    return found


def device_path(option: bytes) -> list[tuple[int, int, bytes]]:
    """Type, subtype and content of each node of a load option."""
    (length,) = struct.unpack_from("<H", option, 4)
    offset = 6
    while option[offset : offset + 2] != b"\0\0":
        offset += 2
    offset += 2
    end, nodes = offset + length, []
    while offset < end:
        type_, subtype, size = struct.unpack_from("<BBH", option, offset)
        nodes.append((type_, subtype, option[offset + 4 : offset + size]))
        offset += size
    assert offset == end
    return nodes


def test_options_come_first_in_the_boot_order() -> None:
    options = [nvram.http_option(MAC, "http://10.80.0.1/a.efi"), nvram.pxe_option(MAC)]
    volume = nvram.write_boot_order(empty_store(), options)
    assert read_variables(volume) == {
        "Boot0000": options[0],
        "Boot0001": options[1],
        "BootOrder": struct.pack("<HH", 0, 1),
    }
    assert len(volume) == len(empty_store())


def test_an_http_option_names_nic_ipv4_and_uri() -> None:
    nodes = device_path(nvram.http_option(MAC, "http://10.80.0.1/a.efi"))
    assert [(type_, subtype) for type_, subtype, _ in nodes] == [(2, 1), (1, 1), (3, 11), (3, 12), (3, 24), (127, 255)]
    assert nodes[1][2] == bytes([0, nvram.NIC_PCI_SLOT])
    assert nodes[2][2][:6].hex(":") == MAC
    assert nodes[4][2] == b"http://10.80.0.1/a.efi"


def test_a_pxe_option_ends_at_ipv4() -> None:
    assert [subtype for _, subtype, _ in device_path(nvram.pxe_option(MAC))] == [1, 1, 11, 12, 255]


def test_variables_that_are_there_stay() -> None:
    with_one = bytearray(empty_store())
    name, data = "Lang\0".encode("utf-16-le"), b"eng"
    header = struct.pack("<HBxIQ16sIII16s", 0x55AA, 0x3F, 7, 0, bytes(16), 0, len(name), len(data), bytes(16))
    with_one[HEADER_BYTES + 28 : HEADER_BYTES + 28 + len(header + name + data)] = header + name + data
    after = read_variables(nvram.write_boot_order(bytes(with_one), [nvram.pxe_option(MAC)]))
    assert after == {"Lang": b"eng", "Boot0000": nvram.pxe_option(MAC), "BootOrder": b"\0\0"}


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (b"\0" * 200, "firmware volume"),
        (empty_store()[:HEADER_BYTES] + b"\0" * 28 + b"\xff" * 99, "healthy store"),
    ],
)
def test_what_is_no_variable_store_is_not_written_to(broken: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        nvram.write_boot_order(broken, [nvram.pxe_option(MAC)])


def test_a_full_store_is_not_overrun() -> None:
    with pytest.raises(ValueError, match="no room"):
        nvram.write_boot_order(empty_store(), [nvram.http_option(MAC, "http://x/" + "a" * STORE_BYTES)])


@pytest.mark.parametrize(("architecture", "packages"), [("x86_64", PACKAGES), ("arm64", ARM64_PACKAGES)])
def test_the_firmwares_own_template_is_understood(architecture: Architecture, packages: tuple[str, ...]) -> None:
    template = lab_tools(packages).path(BOARDS[architecture].variables).read_bytes()
    before = read_variables(template)
    after = read_variables(nvram.write_boot_order(template, [nvram.pxe_option(MAC)]))
    assert after == before | {"Boot0000": nvram.pxe_option(MAC), "BootOrder": b"\0\0"}


def test_the_golden_bytes_of_a_pxe_option() -> None:
    golden = Path(__file__).parents[1] / "golden" / "lab" / "pxe-option.hex"
    assert nvram.pxe_option(MAC).hex() == golden.read_text().strip()
