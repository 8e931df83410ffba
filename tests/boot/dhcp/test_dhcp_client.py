"""Who asks: the table of architectures and classes as they are seen in the field."""

from __future__ import annotations

import pytest

from provisioner.boot.dhcp.wire.client import DhcpClient, Identity, identify, is_ipxe


def arch(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(2, "big") for number in numbers)


PXE = b"PXEClient:Arch:00007:UNDI:003016"
HTTP = b"HTTPClient:Arch:00016:UNDI:003001"

CLIENTS = [
    # vendor class, option 93, option 77 → client, architecture
    (None, None, None, DhcpClient.PLAIN, None),
    (b"udhcp 1.35.0", None, None, DhcpClient.PLAIN, None),
    (b"NVIDIA/BF/OOB", None, None, DhcpClient.PLAIN, None),
    (b"NVIDIA/BF/DP", None, None, DhcpClient.PLAIN, None),
    (b"NVIDIA/BF/BMC", None, None, DhcpClient.PLAIN, None),
    (b"PXEClient:Arch:00000:UNDI:002001", arch(0), None, DhcpClient.BIOS_PXE, "x86_64"),
    (PXE, arch(7), None, DhcpClient.X64_PXE, "x86_64"),
    (PXE, arch(9), None, DhcpClient.X64_PXE, "x86_64"),
    (PXE, arch(11), None, DhcpClient.ARM64_PXE, "arm64"),
    (PXE, arch(6), None, DhcpClient.UNSUPPORTED, None),
    (PXE, arch(10), None, DhcpClient.UNSUPPORTED, None),
    (PXE, arch(6, 7), None, DhcpClient.X64_PXE, "x86_64"),
    (HTTP, arch(15), None, DhcpClient.UNSUPPORTED, None),
    (HTTP, arch(16), None, DhcpClient.X64_HTTP, "x86_64"),
    (HTTP, arch(17), None, DhcpClient.X64_HTTP, "x86_64"),
    (HTTP, arch(18), None, DhcpClient.UNSUPPORTED, None),
    (HTTP, arch(19), None, DhcpClient.ARM64_HTTP, "arm64"),
    (HTTP, arch(20), None, DhcpClient.BIOS_HTTP, "x86_64"),
    # the class names HTTP, the number the PXE twin
    (b"HTTPClient:Arch:00011", arch(11), None, DhcpClient.ARM64_HTTP, "arm64"),
    (b"HTTPClient:Arch:00011", None, None, DhcpClient.ARM64_HTTP, "arm64"),
    (b"HTTPClient:Arch:00016:UNDI:003001", None, None, DhcpClient.X64_HTTP, "x86_64"),
    (b"PXEClient:Arch:00007:UNDI:003016", None, None, DhcpClient.X64_PXE, "x86_64"),
    (b"PXEClient", None, None, DhcpClient.BIOS_PXE, "x86_64"),
    (b"NVIDIA/BF/PXE", None, None, DhcpClient.ARM64_PXE, "arm64"),
    (b"NVIDIA/BF/PXE", arch(11), None, DhcpClient.ARM64_PXE, "arm64"),
    (b"NVIDIA/BF/PXE", arch(19), None, DhcpClient.ARM64_HTTP, "arm64"),
    (b"BF2Client", None, None, DhcpClient.ARM64_PXE, "arm64"),
    (PXE, b"\x07", None, DhcpClient.X64_PXE, "x86_64"),
    (PXE, arch(999), None, DhcpClient.UNSUPPORTED, None),
    # iPXE, however it is written, is iPXE whatever else it says
    (PXE, arch(7), b"iPXE", DhcpClient.IPXE, "x86_64"),
    (b"PXEClient:Arch:00011:UNDI:003010", arch(11), b"\x04iPXE", DhcpClient.IPXE, "arm64"),
    (HTTP, arch(16), b"\x03abc\x04iPXE", DhcpClient.IPXE, "x86_64"),
    (None, None, b"iPXE", DhcpClient.IPXE, None),
    (PXE, arch(7), b"gPXE", DhcpClient.X64_PXE, "x86_64"),
    (PXE, arch(7), b"\xffiPXE", DhcpClient.X64_PXE, "x86_64"),
]


@pytest.mark.parametrize(("vendor", "architecture", "user", "client", "machine"), CLIENTS)
def test_a_client_is_told_by_its_options(
    vendor: bytes | None, architecture: bytes | None, user: bytes | None, client: DhcpClient, machine: str | None
) -> None:
    assert identify(vendor, architecture, user) == Identity(client, machine)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x04iPX", b"ipxe", b"iPXE2"])
def test_what_only_looks_like_ipxe_is_not(value: bytes) -> None:
    assert not is_ipxe(value)
