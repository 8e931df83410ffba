"""Whole replies to packets that real firmware sent, and what every reply has in common.

`GOLDEN=write` writes the golden files instead of comparing.
"""

from __future__ import annotations

import os

import pytest

from provisioner.api.machinery.errors import Refused
from provisioner.boot.dhcp import DhcpConfig
from provisioner.boot.dhcp.model.config import LONGEST_TEXT
from provisioner.boot.dhcp.model.sighting import Sighting, observe
from provisioner.boot.dhcp.model.subnet import read_subnet
from provisioner.boot.dhcp.responder.inventory import Inventory
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.client import DhcpClient
from provisioner.boot.dhcp.wire.describe import describe_message
from provisioner.boot.dhcp.wire.packet import decode
from provisioner.boot.dhcp.wire.template import ReplyKind, build_templates
from provisioner.boot.tftp.firmware import FIRMWARE_FILES
from tests.boot.dhcp.messages import (
    CAPTURED,
    CONFIG,
    GOLDEN,
    SERVER,
    UNICAST,
    Responder,
    address,
    captured,
    describe,
    message,
    rack,
    read_reply,
    server,
    subnet,
)

CAPTURE_SERVER = "10.99.0.1"
"""The DHCP server that the captured REQUESTs name, and the network in which they were captured."""


def lab() -> Responder:
    """The inventory that fits the captured packets: each of their machines has the address that it was given there."""
    mac_and_address = {}
    for name in CAPTURED:
        packet = decode(captured(name))
        assert not isinstance(packet, str)
        requested = packet.options.get(opt.REQUESTED_ADDRESS)
        if requested:
            mac_and_address[packet.mac.hex(":")] = ".".join(map(str, requested))
    servers = [server(mac.replace(":", ""), mac, its) for mac, its in mac_and_address.items()]
    network = subnet(cidr="10.99.0.0/24", gateway=CAPTURE_SERVER, mtu=9000)
    return Responder(rack("r01", network), *servers, config=DhcpConfig(server_address=CAPTURE_SERVER))


@pytest.mark.parametrize("name", CAPTURED)
def test_real_firmware_is_answered_exactly_so(name: str) -> None:
    responder = lab()
    arrival = UNICAST._replace(interface_index=7, addresses=(address(CAPTURE_SERVER),))
    outcome = responder.answer(captured(name), arrival)
    assert outcome.reply is not None, outcome.verdict
    path = GOLDEN / f"{name}.reply"
    if os.environ.get("GOLDEN") == "write":
        path.write_text(describe(outcome.reply))
    assert describe(outcome.reply) == path.read_text()


def worst_templates() -> dict[tuple[ReplyKind, DhcpClient], bytes]:
    longest = "http://" + "h" * (LONGEST_TEXT - len("http:///tftp/") - max(map(len, FIRMWARE_FILES)))
    config = DhcpConfig(server_address=SERVER, web_url=longest)
    full = subnet(dns_servers=("10.80.0.2",) * 9, ntp_servers=("10.80.0.3",) * 9, mtu=9000)
    templates = build_templates(read_subnet("r01", full), config)
    return {(kind, client): templates[kind][client].complete for kind in ReplyKind for client in DhcpClient}


def test_no_reply_is_ever_larger_than_every_client_accepts() -> None:
    for (kind, client), complete in worst_templates().items():
        assert len(complete) + 44 <= opt.MINIMUM_MESSAGE_LIMIT - opt.IP_UDP_HEADER_BYTES, (kind, client)


def test_no_reply_is_smaller_than_bootp_s_minimum() -> None:
    responder = Responder()
    refused = responder.answer(message(opt.REQUEST, options={opt.REQUESTED_ADDRESS: address("10.80.0.99")})).reply
    assert refused is not None
    assert len(refused) == opt.MINIMUM_REPLY_BYTES
    for (kind, client), complete in worst_templates().items():
        assert len(complete) + 44 >= opt.MINIMUM_REPLY_BYTES, (kind, client)


@pytest.mark.parametrize(("limit", "echoed"), [(None, False), (300, False), (576, False), (1400, True)])
def test_a_client_s_identifier_is_echoed_only_where_the_client_takes_so_large_a_reply(
    limit: int | None, echoed: bool
) -> None:
    identifier = b"\x00" + b"i" * 250
    options = {opt.CLIENT_IDENTIFIER: identifier}
    if limit is not None:
        options[opt.MAXIMUM_MESSAGE_SIZE] = limit.to_bytes(2, "big")
    outcome = Responder().answer(message(opt.DISCOVER, options=options))
    assert outcome.reply is not None
    assert (read_reply(outcome.reply).options.get(opt.CLIENT_IDENTIFIER) == identifier) is echoed
    assert len(outcome.reply) <= max(limit or 0, 576) - 28


def test_an_identifier_that_came_in_several_pieces_goes_back_whole() -> None:
    """RFC 3396 and RFC 6842, section 3."""
    first, second = opt.encode_option(61, b"\x00" + b"i" * 254), opt.encode_option(61, b"j" * 30)
    options = {opt.MAXIMUM_MESSAGE_SIZE: (1400).to_bytes(2, "big")}
    reply = Responder().reply(message(opt.DISCOVER, options=options, end=first + second + b"\xff"))
    assert first + second in reply.data


def test_pxe_offers_have_neither_option_60_nor_43_nor_a_window_size() -> None:
    options = {opt.VENDOR_CLASS: b"PXEClient:Arch:00007:UNDI:003016", opt.CLIENT_ARCHITECTURE: b"\x00\x07"}
    reply = Responder().reply(message(opt.DISCOVER, options=options))
    assert opt.VENDOR_CLASS not in reply.options
    assert 43 not in reply.options
    assert b"windowsize" not in reply.data


def test_ipxe_is_told_a_url_and_not_to_wait_for_a_proxy() -> None:
    reply = Responder().reply(message(opt.DISCOVER, options={opt.USER_CLASS: b"iPXE"}))
    assert reply.options[opt.BOOT_FILE] == b"http://10.80.0.1/boot.ipxe"
    assert reply.options[opt.IPXE] == b"\xb0\x01\x01"


@pytest.mark.parametrize("vendor_class", [b"PXEClient", b"HTTPClient"])
@pytest.mark.parametrize("number", [0, 7, 9, 11, 16, 19])
@pytest.mark.parametrize("relayed", [False, True])
def test_firmware_that_reads_text_up_to_a_zero_reads_what_was_meant(
    vendor_class: bytes, number: int, relayed: bool
) -> None:
    """netboot.xyz issue 1198: such ROMs asked for `undionly.kpxea` and a byte, of the option that followed."""
    options = {
        opt.VENDOR_CLASS: vendor_class,
        opt.CLIENT_ARCHITECTURE: bytes((0, number)),
        opt.MACHINE_IDENTIFIER: bytes(17),
        opt.CLIENT_IDENTIFIER: b"\1" * 7,
    }
    if relayed:
        options[opt.RELAY_INFORMATION] = b"\1\4port"
    reply = Responder().reply(message(opt.DISCOVER, options=options))
    texts = {opt.VENDOR_CLASS, opt.TFTP_SERVER_NAME, opt.BOOT_FILE} & set(reply.options)
    assert opt.BOOT_FILE in texts
    for code in texts:
        value = reply.options[code]
        assert reply.data.partition(bytes((code, len(value))) + value)[2][:1] == b"\0"
    file, server = reply.data[108:236], reply.data[44:108]
    assert (file[-1], server[-1]) == (0, 0), "the fixed fields end in a zero, too"


def test_a_client_that_accepts_more_than_an_ethernet_carries_gets_no_fragments() -> None:
    options = {opt.MAXIMUM_MESSAGE_SIZE: b"\xff\xff"}
    long = b"".join(opt.encode_option(61, b"i" * 255) for _ in range(5))
    reply = Responder().reply(message(opt.DISCOVER, options=options, end=long + b"\xff"))
    assert len(reply.data) <= 1500 - 28
    assert opt.CLIENT_IDENTIFIER not in reply.options


@pytest.mark.parametrize("number", [6, 10])
def test_firmware_without_a_first_stage_gets_an_address_alone(number: int) -> None:
    options = {opt.VENDOR_CLASS: b"PXEClient", opt.CLIENT_ARCHITECTURE: bytes((0, number))}
    reply = Responder().reply(message(opt.DISCOVER, options=options))
    assert not {opt.BOOT_FILE, opt.TFTP_SERVER_NAME, opt.VENDOR_CLASS} & set(reply.options)
    assert reply.data[20:24] == bytes(4)


def test_a_subnet_without_gateway_dns_and_mtu_says_nothing_of_them() -> None:
    bare = subnet(gateway=None, dns_servers=(), ntp_servers=(), mtu=None)
    reply = Responder(rack("r01", bare)).reply(message(opt.DISCOVER))
    assert not {opt.ROUTER, opt.DNS_SERVERS, opt.NTP_SERVERS, opt.INTERFACE_MTU} & set(reply.options)
    assert Inventory.of([rack("r01", bare)], []).problems == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"server_address": "boot.example"}, "server_address is 'boot.example'"),
        ({"server_address": SERVER, "workers": 0}, "workers is 0"),
        ({"server_address": SERVER, "workers": 17}, "workers is 17"),
        ({"server_address": SERVER, "web_url": "http://" + "x" * 130}, "longer than 127"),
        ({"server_address": SERVER, "web_url": "http://börse"}, "not ASCII"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(Refused, match=words):
        DhcpConfig(**settings)  # type: ignore[arg-type]


def test_addresses_and_urls_are_the_server_s_own_unless_set() -> None:
    assert CONFIG.script == "http://10.80.0.1/boot.ipxe"
    assert CONFIG.firmware("snponly.efi") == "http://10.80.0.1/tftp/snponly.efi"
    other = DhcpConfig(server_address=SERVER, web_url="http://boot.example:8080")
    assert other.script == "http://boot.example:8080/boot.ipxe"
    assert other.firmware("a.efi") == "http://boot.example:8080/tftp/a.efi"


def test_the_uuid_of_option_97_is_the_one_that_smbios_shows() -> None:
    # QEMU was started with -uuid 12345678-9abc-def0-1122-334455667788 for this capture.
    described = describe_message(captured("x64-pxe-discover"))
    assert described is not None
    assert described.option(opt.MACHINE_IDENTIFIER) == "12345678-9abc-def0-1122-334455667788"
    for odd in (b"\0" * 17, b"\1" + b"x" * 16, b"\0" + b"x" * 15):
        described = describe_message(message(opt.DISCOVER, options={opt.MACHINE_IDENTIFIER: odd}))
        assert described is not None
        assert described.option(opt.MACHINE_IDENTIFIER) == odd.hex(":")


def test_an_observation_says_what_was_seen_in_the_words_of_the_api() -> None:
    seen = Sighting(
        mac=bytes.fromhex("5254000000ab"),
        xid=b"1234",
        kind="Firmware",
        address=address("10.80.0.21"),
        subnet=("r01", "boot"),
    )
    observation = observe(seen, "r01-u01")
    assert observation.mac_address == "52:54:00:00:00:ab"
    assert (observation.server, observation.rack, observation.subnet) == ("r01-u01", "r01", "boot")
    assert observation.address == "10.80.0.21"
