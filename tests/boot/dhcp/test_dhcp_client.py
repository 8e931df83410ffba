"""Who asks: the table of architectures and classes as they are seen in the field."""

from __future__ import annotations

import pytest

from provisioner.boot.dhcp.wire.client import Client, Identity, identify, is_ipxe


def arch(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(2, "big") for number in numbers)


PXE = b"PXEClient:Arch:00007:UNDI:003016"
HTTP = b"HTTPClient:Arch:00016:UNDI:003001"

CLIENTS = [
    # vendor class, option 93, option 77 → client, architecture
    (None, None, None, Client.PLAIN, None),
    (b"udhcp 1.35.0", None, None, Client.PLAIN, None),
    (b"NVIDIA/BF/OOB", None, None, Client.PLAIN, None),
    (b"NVIDIA/BF/DP", None, None, Client.PLAIN, None),
    (b"NVIDIA/BF/BMC", None, None, Client.PLAIN, None),
    (b"PXEClient:Arch:00000:UNDI:002001", arch(0), None, Client.BIOS_PXE, "x86_64"),
    (PXE, arch(7), None, Client.X64_PXE, "x86_64"),
    (PXE, arch(9), None, Client.X64_PXE, "x86_64"),
    (PXE, arch(11), None, Client.ARM64_PXE, "arm64"),
    (PXE, arch(6), None, Client.UNSUPPORTED, None),
    (PXE, arch(10), None, Client.UNSUPPORTED, None),
    (PXE, arch(6, 7), None, Client.X64_PXE, "x86_64"),
    (HTTP, arch(15), None, Client.UNSUPPORTED, None),
    (HTTP, arch(16), None, Client.X64_HTTP, "x86_64"),
    (HTTP, arch(17), None, Client.X64_HTTP, "x86_64"),
    (HTTP, arch(18), None, Client.UNSUPPORTED, None),
    (HTTP, arch(19), None, Client.ARM64_HTTP, "arm64"),
    (HTTP, arch(20), None, Client.BIOS_HTTP, "x86_64"),
    # the class names HTTP, the number the PXE twin
    (b"HTTPClient:Arch:00011", arch(11), None, Client.ARM64_HTTP, "arm64"),
    (b"HTTPClient:Arch:00011", None, None, Client.ARM64_HTTP, "arm64"),
    (b"HTTPClient:Arch:00016:UNDI:003001", None, None, Client.X64_HTTP, "x86_64"),
    (b"PXEClient:Arch:00007:UNDI:003016", None, None, Client.X64_PXE, "x86_64"),
    (b"PXEClient", None, None, Client.BIOS_PXE, "x86_64"),
    (b"NVIDIA/BF/PXE", None, None, Client.ARM64_PXE, "arm64"),
    (b"NVIDIA/BF/PXE", arch(11), None, Client.ARM64_PXE, "arm64"),
    (b"NVIDIA/BF/PXE", arch(19), None, Client.ARM64_HTTP, "arm64"),
    (b"BF2Client", None, None, Client.ARM64_PXE, "arm64"),
    (PXE, b"\x07", None, Client.X64_PXE, "x86_64"),
    (PXE, arch(999), None, Client.UNSUPPORTED, None),
    # iPXE, however it is written, is iPXE whatever else it says
    (PXE, arch(7), b"iPXE", Client.IPXE, "x86_64"),
    (b"PXEClient:Arch:00011:UNDI:003010", arch(11), b"\x04iPXE", Client.IPXE, "arm64"),
    (HTTP, arch(16), b"\x03abc\x04iPXE", Client.IPXE, "x86_64"),
    (None, None, b"iPXE", Client.IPXE, None),
    (PXE, arch(7), b"gPXE", Client.X64_PXE, "x86_64"),
    (PXE, arch(7), b"\xffiPXE", Client.X64_PXE, "x86_64"),
]


@pytest.mark.parametrize(("vendor", "architecture", "user", "client", "machine"), CLIENTS)
def test_a_client_is_told_by_its_options(
    vendor: bytes | None, architecture: bytes | None, user: bytes | None, client: Client, machine: str | None
) -> None:
    assert identify(vendor, architecture, user) == Identity(client, machine)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x04iPX", b"ipxe", b"iPXE2"])
def test_what_only_looks_like_ipxe_is_not(value: bytes) -> None:
    assert not is_ipxe(value)
