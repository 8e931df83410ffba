"""What firmware, iPXE and an operating system are answered on the port of a host that boots through its DPU."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import pytest

from provisioner.network.agent.boot.dhcp import answer, network_of
from provisioner.network.agent.boot.plane import BootingHost, BootServices
from provisioner.network.agent.dhcp.wire import Reply, decode, encode
from tests.network.agent.dhcp.messages import MAC, OTHER_MAC, PORT, message, read

HOST = BootingHost("pf0", MAC, IPv4Address("10.80.0.21"))
SERVICES = BootServices(IPv4Address("10.80.0.1"), IPv4Address("10.80.0.5"))
X64 = (("vendor_class_id", b"PXEClient:Arch:00007:UNDI:003016"), ("pxe_client_architecture", b"\0\7"))


def answered(data: bytes, port: Any = PORT) -> Reply | None:
    request = decode(data)
    assert request is not None
    return answer(request, HOST, SERVICES, port)


@pytest.mark.parametrize(
    ("options", "file", "server"),
    [
        (X64, "snponly.efi", "10.80.0.1"),
        ((("vendor_class_id", b"PXEClient:Arch:00011:UNDI:003000"),), "ipxe-arm64.efi", "10.80.0.1"),
        ((("vendor_class_id", b"PXEClient:Arch:00000:UNDI:002001"),), "undionly.kpxe", "10.80.0.1"),
        ((("vendor_class_id", b"HTTPClient:Arch:00016:UNDI:003001"),), "http://10.80.0.1/tftp/snponly.efi", None),
        ((*X64, ("user_class", b"iPXE")), "http://10.80.0.1/boot.ipxe", None),
        ((*X64, ("user_class", b"\4iPXE")), "http://10.80.0.1/boot.ipxe", None),
        ((("vendor_class_id", b"PXEClient:Arch:00006:UNDI:003001"),), None, None),
    ],
    ids=["x64", "arm64", "BIOS", "x64 by HTTP", "iPXE", "iPXE by RFC 3004", "32-bit UEFI"],
)
def test_firmware_and_ipxe_get_the_boot_address_and_what_to_load(
    options: tuple[tuple[str, bytes], ...], file: str | None, server: str | None
) -> None:
    reply = answered(message("discover", *options))
    assert reply is not None
    head, said = read(reply)
    assert (head.yiaddr, said["message-type"], said["router"]) == ("10.80.0.21", 2, "10.80.0.1")
    name = said.get("boot-file-name")
    assert (name.decode() if name is not None else None) == file
    if server is not None:
        assert (head.siaddr, head.file.rstrip(b"\0").decode()) == (server, file)


@pytest.mark.parametrize("vendor_class", [b"PXEClient:Arch:00007", b"PXEClient:Arch:00000", b"HTTPClient:Arch:00016"])
def test_firmware_reads_text_up_to_a_zero_and_finds_its_machine_identifier(vendor_class: bytes) -> None:
    identifier = bytes(range(17))
    options = (("vendor_class_id", vendor_class), ("client_id", b"\1" * 7))
    reply = answered(message("discover", *options, ("pxe_client_machine_identifier", identifier)))
    assert reply is not None
    data = encode(reply)
    texts = [value for code, value in reply.options if code in (60, 66, 67)]
    assert len(texts) == 2
    assert all(data.partition(value)[2][:1] == b"\0" for value in texts)
    assert bytes((97, 17)) + identifier in data


def test_an_operating_system_gets_the_address_of_its_vpc_and_none_without_one() -> None:
    reply = answered(message("discover"))
    assert reply is not None
    assert (reply.gives, reply.to) == (PORT.address, IPv4Address("255.255.255.255"))
    assert answered(message("discover"), port=None) is None


def test_another_mac_address_hears_nothing() -> None:
    assert answered(message("discover", *X64, mac=OTHER_MAC)) is None
    assert answered(message("discover", mac=OTHER_MAC)) is None


def test_it_confirms_the_boot_address_and_refuses_every_other() -> None:
    taken = answered(message("request", *X64, ("requested_addr", "10.80.0.21"), ("server_id", "10.80.0.1")))
    assert taken is not None
    assert read(taken)[1]["message-type"] == 5
    other = answered(message("request", *X64, ("requested_addr", "10.80.0.22")))
    assert other is not None
    assert read(other)[1]["message-type"] == 6
    assert answered(message("request", *X64, ("requested_addr", "10.80.0.21"), ("server_id", "10.80.0.9"))) is None


@pytest.mark.parametrize("address", ["10.80.0.0", "10.80.0.255", "10.80.0.1", "10.80.255.255", "10.255.255.255"])
def test_no_address_is_the_first_or_last_of_its_subnet_nor_its_router(address: str) -> None:
    network, router = network_of(IPv4Address(address))
    own = IPv4Address(address)
    assert own in network
    assert own not in (network.network_address, network.broadcast_address, router)
    assert router in network
