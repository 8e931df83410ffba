"""Who asks: the table of architectures and classes as they are seen in the field."""

from __future__ import annotations

import pytest

from provisioner.boot.dhcp.wire.client import DhcpClient, identify, is_ipxe


def arch(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(2, "big") for number in numbers)


PXE = b"PXEClient:Arch:00007:UNDI:003016"
HTTP = b"HTTPClient:Arch:00016:UNDI:003001"

CLIENTS = [
    # vendor class, option 93, option 77 → client
    (None, None, None, DhcpClient.PLAIN),
    (b"udhcp 1.35.0", None, None, DhcpClient.PLAIN),
    (b"NVIDIA/BF/OOB", None, None, DhcpClient.PLAIN),
    (b"NVIDIA/BF/DP", None, None, DhcpClient.PLAIN),
    (b"NVIDIA/BF/BMC", None, None, DhcpClient.PLAIN),
    (b"PXEClient:Arch:00000:UNDI:002001", arch(0), None, DhcpClient.BIOS_PXE),
    (PXE, arch(7), None, DhcpClient.X64_PXE),
    (PXE, arch(9), None, DhcpClient.X64_PXE),
    (PXE, arch(11), None, DhcpClient.ARM64_PXE),
    (PXE, arch(6), None, DhcpClient.UNSUPPORTED),
    (PXE, arch(10), None, DhcpClient.UNSUPPORTED),
    (PXE, arch(6, 7), None, DhcpClient.X64_PXE),
    (HTTP, arch(15), None, DhcpClient.UNSUPPORTED),
    (HTTP, arch(16), None, DhcpClient.X64_HTTP),
    (HTTP, arch(17), None, DhcpClient.X64_HTTP),
    (HTTP, arch(18), None, DhcpClient.UNSUPPORTED),
    (HTTP, arch(19), None, DhcpClient.ARM64_HTTP),
    (HTTP, arch(20), None, DhcpClient.BIOS_HTTP),
    # the class names HTTP, the number the PXE twin
    (b"HTTPClient:Arch:00011", arch(11), None, DhcpClient.ARM64_HTTP),
    (b"HTTPClient:Arch:00011", None, None, DhcpClient.ARM64_HTTP),
    (b"HTTPClient:Arch:00016:UNDI:003001", None, None, DhcpClient.X64_HTTP),
    (b"PXEClient:Arch:00007:UNDI:003016", None, None, DhcpClient.X64_PXE),
    (b"PXEClient", None, None, DhcpClient.BIOS_PXE),
    (b"NVIDIA/BF/PXE", None, None, DhcpClient.ARM64_PXE),
    (b"NVIDIA/BF/PXE", arch(11), None, DhcpClient.ARM64_PXE),
    (b"NVIDIA/BF/PXE", arch(19), None, DhcpClient.ARM64_HTTP),
    (b"BF2Client", None, None, DhcpClient.ARM64_PXE),
    (PXE, b"\x07", None, DhcpClient.X64_PXE),
    (PXE, arch(999), None, DhcpClient.UNSUPPORTED),
    # iPXE, however it is written, is iPXE whatever else it says
    (PXE, arch(7), b"iPXE", DhcpClient.IPXE),
    (b"PXEClient:Arch:00011:UNDI:003010", arch(11), b"\x04iPXE", DhcpClient.IPXE),
    (HTTP, arch(16), b"\x03abc\x04iPXE", DhcpClient.IPXE),
    (None, None, b"iPXE", DhcpClient.IPXE),
    (PXE, arch(7), b"gPXE", DhcpClient.X64_PXE),
    (PXE, arch(7), b"\xffiPXE", DhcpClient.X64_PXE),
]


@pytest.mark.parametrize(("vendor", "architecture", "user", "client"), CLIENTS)
def test_a_client_is_told_by_its_options(
    vendor: bytes | None, architecture: bytes | None, user: bytes | None, client: DhcpClient
) -> None:
    assert identify(vendor, architecture, user) is client


@pytest.mark.parametrize("value", [b"", b"\x00", b"\x04iPX", b"ipxe", b"iPXE2"])
def test_what_only_looks_like_ipxe_is_not(value: bytes) -> None:
    assert not is_ipxe(value)
