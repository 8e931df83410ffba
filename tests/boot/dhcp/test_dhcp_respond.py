"""Who is answered what: RFC 2131's states of a client against what is known of the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.api.servers.rack import Rack
from provisioner.boot.dhcp.model.sighting import observe
from provisioner.boot.dhcp.responder.inventory import Delta
from provisioner.boot.dhcp.responder.respond import FORWARDED
from provisioner.boot.dhcp.responder.table import ReplyTable
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.reply import Destination
from tests.boot.dhcp.messages import (
    CONFIG,
    DIRECT,
    KNOWN_ADDRESS,
    KNOWN_MAC,
    SERVER,
    UNICAST,
    UNKNOWN_MAC,
    Responder,
    address,
    mac_bytes,
    message,
    rack,
    request_of,
    server,
    subnet,
    yiaddr,
)

RELAY = "10.80.0.254"
BROADCAST = Destination("255.255.255.255", 68, 7)
PXE = {opt.VENDOR_CLASS: b"PXEClient:Arch:00007:UNDI:003016", opt.CLIENT_ARCHITECTURE: b"\x00\x07"}
IPXE = PXE | {opt.USER_CLASS: b"iPXE"}


# A registered machine


def test_a_known_machine_is_offered_its_address() -> None:
    outcome = Responder().answer(message(opt.DISCOVER))
    assert outcome.verdict == "offered"
    assert outcome.destination == BROADCAST
    reply = Responder().reply(message(opt.DISCOVER))
    assert yiaddr(reply) == KNOWN_ADDRESS
    assert reply.options[opt.SERVER_IDENTIFIER] == address(SERVER)
    assert reply.options[opt.LEASE_TIME] == (86_400).to_bytes(4, "big")
    assert reply.options[opt.RENEWAL_TIME] == (43_200).to_bytes(4, "big")
    assert reply.options[opt.REBINDING_TIME] == (75_600).to_bytes(4, "big")
    assert reply.options[opt.INTERFACE_MTU] == (9000).to_bytes(2, "big")


@pytest.mark.parametrize("server_identifier", [SERVER, None], ids=["selecting", "init-reboot"])
def test_a_known_machine_gets_the_address_that_is_its_own(server_identifier: str | None) -> None:
    outcome = Responder().answer(request_of(KNOWN_ADDRESS, server=server_identifier))
    assert outcome.verdict == "acknowledged"
    assert outcome.destination == BROADCAST


@pytest.mark.parametrize("server_identifier", [SERVER, None], ids=["selecting", "init-reboot"])
@pytest.mark.parametrize("stale", ["10.80.0.99", "10.80.0.201", "192.168.1.5"])
def test_a_known_machine_is_refused_any_other_address(server_identifier: str | None, stale: str) -> None:
    outcome = Responder().answer(request_of(stale, server=server_identifier))
    assert outcome.verdict == "refused"
    assert outcome.destination == BROADCAST
    reply = Responder().reply(request_of(stale, server=server_identifier))
    assert reply.options[opt.MESSAGE_TYPE] == bytes((opt.NAK,))
    assert yiaddr(reply) == "0.0.0.0"  # noqa: S104
    assert reply.options[opt.SERVER_IDENTIFIER] == address(SERVER)


def test_a_renewal_is_answered_to_the_address_that_the_machine_has() -> None:
    outcome = Responder().answer(message(opt.REQUEST, ciaddr=KNOWN_ADDRESS), UNICAST)
    assert outcome.verdict == "acknowledged"
    assert outcome.destination == Destination(KNOWN_ADDRESS, 68)
    reply = Responder().reply(message(opt.REQUEST, ciaddr=KNOWN_ADDRESS), UNICAST)
    assert reply.ciaddr == address(KNOWN_ADDRESS)
    assert yiaddr(reply) == KNOWN_ADDRESS


def test_a_rebinding_machine_is_answered_to_the_address_that_it_has() -> None:
    outcome = Responder().answer(message(opt.REQUEST, ciaddr=KNOWN_ADDRESS))
    assert (outcome.verdict, outcome.destination) == ("acknowledged", Destination(KNOWN_ADDRESS, 68))


def test_a_stale_renewal_is_refused_where_the_machine_hears_it() -> None:
    stale = message(opt.REQUEST, ciaddr="10.80.0.99")
    responder = Responder()
    assert responder.answer(stale, DIRECT)[0] == "refused"
    assert responder.answer(stale, DIRECT).destination == BROADCAST
    assert responder.answer(stale, UNICAST).destination == Destination("10.80.0.99", 68)


def test_a_machine_that_took_another_server_s_offer_is_left_alone() -> None:
    assert Responder().answer(request_of(KNOWN_ADDRESS, server="10.80.0.77")).verdict == "dropped-for-another-server"


def test_a_request_for_nothing_is_dropped() -> None:
    assert Responder().answer(message(opt.REQUEST)).verdict == "dropped-no-requested-address"


def test_inform_is_answered_without_a_lease() -> None:
    data = message(opt.INFORM, UNKNOWN_MAC, ciaddr="10.80.0.50")
    outcome = Responder().answer(data)
    assert (outcome.verdict, outcome.destination) == ("informed", Destination("10.80.0.50", 68))
    reply = Responder().reply(data)
    assert yiaddr(reply) == "0.0.0.0"  # noqa: S104
    assert opt.LEASE_TIME not in reply.options
    assert reply.options[opt.SUBNET_MASK] == address("255.255.255.0")
    assert Responder().answer(message(opt.INFORM, ciaddr="10.99.0.50")).verdict == "dropped-no-subnet"


def test_a_declined_reservation_is_told_to_the_service_and_not_answered() -> None:
    outcome = Responder().answer(message(opt.DECLINE, options={opt.REQUESTED_ADDRESS: address(KNOWN_ADDRESS)}))
    assert outcome.reply is None
    assert outcome.sighting is not None
    assert (outcome.sighting.kind, outcome.sighting.mac) == ("Declined", mac_bytes(KNOWN_MAC))


def test_a_release_is_not_answered() -> None:
    assert Responder().answer(message(opt.RELEASE, ciaddr=KNOWN_ADDRESS)) == ("released", None, None, None)


@pytest.mark.parametrize("message_type", [0, opt.OFFER, opt.ACK, opt.NAK, 13, 255])
@pytest.mark.parametrize("mac", [KNOWN_MAC, UNKNOWN_MAC])
def test_other_message_types_are_dropped(message_type: int, mac: str) -> None:
    assert Responder().answer(message(message_type, mac)).verdict == "dropped-message-type"


def test_a_known_machine_in_another_rack_s_network_is_not_answered_but_reported() -> None:
    responder = Responder(rack("r01", subnet()), rack("r02", subnet("boot", "10.81.0.0/24")), server())
    outcome = responder.answer(message(opt.DISCOVER, giaddr="10.81.0.254"), UNICAST)
    assert outcome.verdict == "dropped-wrong-subnet"
    assert outcome.sighting is not None
    assert (outcome.sighting.kind, outcome.sighting.subnet) == ("WrongSubnet", ("r02", "boot"))
    assert responder.answer(request_of(KNOWN_ADDRESS, giaddr="10.81.0.254"), UNICAST).verdict == "refused"


def test_silenced_machines_are_silent() -> None:
    responder = Responder(
        server("a", acceptance="Rejected"), server("b", "52:54:00:00:00:30", None, others=("52:54:00:00:00:31",))
    )
    assert responder.answer(message(opt.DISCOVER)).verdict == "dropped-rejected-server"
    assert responder.answer(message(opt.DISCOVER, "52:54:00:00:00:31")).verdict == "dropped-not-the-boot-interface"


# An unknown machine


def test_an_unknown_machine_is_lent_an_address_of_the_discovery_range_for_minutes() -> None:
    responder = Responder()
    offer = responder.reply(message(opt.DISCOVER, UNKNOWN_MAC))
    assert yiaddr(offer) in {f"10.80.0.{n}" for n in range(200, 204)}
    assert offer.options[opt.LEASE_TIME] == (120).to_bytes(4, "big")
    outcome = responder.answer(request_of(yiaddr(offer), UNKNOWN_MAC))
    assert outcome.verdict == "acknowledged-lent"
    assert responder.answer(message(opt.REQUEST, UNKNOWN_MAC, ciaddr=yiaddr(offer)), UNICAST).verdict == (
        "acknowledged-lent"
    )


def test_without_a_discovery_range_an_unknown_machine_hears_nothing_but_the_service_hears_of_it() -> None:
    responder = Responder(rack())
    outcome = responder.answer(message(opt.DISCOVER, UNKNOWN_MAC, options=PXE))
    assert (outcome.verdict, outcome.reply) == ("dropped-no-discovery-range", None)
    assert outcome.sighting is not None
    assert outcome.sighting.kind == "Firmware"
    assert responder.answer(request_of("10.80.0.50", UNKNOWN_MAC, server=None)).reply is None


def test_an_unknown_machine_is_refused_an_address_outside_the_discovery_range() -> None:
    for stale in ("10.80.0.50", KNOWN_ADDRESS, "172.16.0.1"):
        assert Responder().answer(request_of(stale, UNKNOWN_MAC, server=None)).verdict == "refused"


def test_an_unknown_machine_is_refused_an_address_that_another_one_holds() -> None:
    responder = Responder()
    held = yiaddr(responder.reply(message(opt.DISCOVER, UNKNOWN_MAC)))
    responder.answer(request_of(held, UNKNOWN_MAC))
    assert responder.answer(request_of(held, "52:54:00:99:00:02")).verdict == "refused"
    responder.answer(message(opt.RELEASE, UNKNOWN_MAC, ciaddr=held))
    assert responder.answer(request_of(held, "52:54:00:99:00:02")).verdict == "acknowledged-lent"


def test_an_unknown_machine_that_declines_is_offered_another_address() -> None:
    responder = Responder()
    first = yiaddr(responder.reply(message(opt.DISCOVER, UNKNOWN_MAC)))
    assert responder.answer(request_of(first, UNKNOWN_MAC)).verdict == "acknowledged-lent"
    declined = message(opt.DECLINE, UNKNOWN_MAC, options={opt.REQUESTED_ADDRESS: address(first)})
    assert responder.answer(declined).reply is None
    assert yiaddr(responder.reply(message(opt.DISCOVER, UNKNOWN_MAC))) != first


def test_a_full_discovery_range_is_silence() -> None:
    responder = Responder()
    for n in range(4):
        assert responder.answer(message(opt.DISCOVER, f"52:54:00:99:01:0{n}")).verdict == "offered-lent"
    assert responder.answer(message(opt.DISCOVER, UNKNOWN_MAC)).verdict == "dropped-discovery-range-full"


def test_a_machine_that_becomes_known_is_refused_its_lent_address_and_comes_for_its_own() -> None:
    responder = Responder()
    lent = yiaddr(responder.reply(message(opt.DISCOVER, UNKNOWN_MAC)))
    responder.answer(request_of(lent, UNKNOWN_MAC))
    responder.table.apply(responder.inventory.put_server(server("new", UNKNOWN_MAC, "10.80.0.77")))
    assert responder.answer(message(opt.REQUEST, UNKNOWN_MAC, ciaddr=lent), UNICAST).verdict == "refused"
    assert yiaddr(responder.reply(message(opt.DISCOVER, UNKNOWN_MAC))) == "10.80.0.77"


def test_a_registered_machine_without_an_address_is_treated_as_unknown() -> None:
    responder = Responder(server(status_address=None))
    assert responder.answer(message(opt.DISCOVER)).verdict == "offered-lent"


def test_reserved_addresses_and_the_gateway_are_never_lent() -> None:
    around = subnet(discovery=("10.80.0.1", "10.80.0.3"))
    responder = Responder(rack("r01", around), server(status_address="10.80.0.2"))
    assert yiaddr(responder.reply(message(opt.DISCOVER, UNKNOWN_MAC))) == "10.80.0.3"
    assert responder.answer(request_of("10.80.0.1", UNKNOWN_MAC, server=None)).verdict == "refused"


def test_a_worker_that_does_not_keep_the_discovery_ranges_hands_unknown_machines_over() -> None:
    responder = Responder()
    responder.discovery = None
    assert responder.answer(message(opt.DISCOVER, UNKNOWN_MAC)) is FORWARDED
    assert responder.answer(message(opt.DISCOVER)).verdict == "offered"


# Where a packet comes from


def test_a_relay_is_answered_with_what_it_said_of_itself_last() -> None:
    options = {opt.RELAY_INFORMATION: b"\x01\x04eth3\x02\x04sw01", opt.CLIENT_IDENTIFIER: b"\x01me"}
    data = message(opt.DISCOVER, giaddr=RELAY, options=options)
    outcome = Responder().answer(data, UNICAST)
    assert outcome.destination == Destination(RELAY, 67)
    reply = Responder().reply(data, UNICAST)
    assert reply.giaddr == address(RELAY)
    assert reply.options[opt.RELAY_INFORMATION] == options[opt.RELAY_INFORMATION]
    assert list(reply.options)[-1] == opt.RELAY_INFORMATION
    assert reply.options[opt.CLIENT_IDENTIFIER] == b"\x01me"


@pytest.mark.parametrize("asks", ["DISCOVER", "REQUEST", "a stale REQUEST", "INFORM"])
def test_option_82_of_a_switch_that_is_no_relay_is_echoed_too_last(asks: str) -> None:
    """RFC 3046, section 2.1: a bridge adds it and leaves giaddr 0; 2.2: all replies carry it."""
    options = {opt.RELAY_INFORMATION: b"\x01\x04eth3\x02\x04sw01", opt.CLIENT_IDENTIFIER: b"\x01me"}
    wanted = {opt.REQUESTED_ADDRESS: address("10.80.0.99" if "stale" in asks else KNOWN_ADDRESS)}
    data = {
        "DISCOVER": message(opt.DISCOVER, options=options),
        "REQUEST": message(opt.REQUEST, options=options | wanted),
        "a stale REQUEST": message(opt.REQUEST, options=options | wanted),
        "INFORM": message(opt.INFORM, ciaddr=KNOWN_ADDRESS, options=options),
    }[asks]
    reply = Responder().reply(data)
    assert reply.options[opt.RELAY_INFORMATION] == options[opt.RELAY_INFORMATION]
    assert list(reply.options)[-1] == opt.RELAY_INFORMATION
    assert (reply.options[opt.MESSAGE_TYPE] == bytes((opt.NAK,))) is ("stale" in asks)


@pytest.mark.parametrize("data", [message(opt.DISCOVER), request_of("10.80.0.99")], ids=["offer", "refusal"])
def test_a_client_of_another_ieee_802_network_is_served_as_one_of_ethernet(data: bytes) -> None:
    reply = Responder().answer(data[:1] + b"\x06" + data[2:]).reply
    assert reply is not None
    assert reply == b"\x02\x06" + (Responder().answer(data).reply or b"")[2:]


def test_a_refusal_through_a_relay_is_to_be_broadcast_by_it() -> None:
    reply = Responder().reply(request_of("10.80.0.99", giaddr=RELAY), UNICAST)
    assert reply.data[10] & 0x80
    assert Responder().answer(request_of("10.80.0.99", giaddr=RELAY), UNICAST).destination == Destination(RELAY, 67)


def remote(**settings: object) -> tuple[Rack, ...]:
    return (rack("r02", subnet("far", "10.90.0.0/24", **settings)), rack())  # type: ignore[arg-type]


FAR = server("r02-u01", "52:54:00:00:02:01", "10.90.0.11", rack_name="r02", subnet_name="far")
FAR_DISCOVER = {"mac": "52:54:00:00:02:01"}


def test_a_relay_inside_the_subnet_needs_no_naming() -> None:
    responder = Responder(*remote(), FAR)
    assert yiaddr(responder.reply(message(opt.DISCOVER, **FAR_DISCOVER, giaddr="10.90.0.2"), UNICAST)) == "10.90.0.11"


def test_a_relay_that_a_subnet_names_forwards_for_it_from_anywhere() -> None:
    responder = Responder(*remote(relays=("10.255.0.7",)), FAR)
    data = message(opt.DISCOVER, **FAR_DISCOVER, giaddr="10.255.0.7")
    assert yiaddr(responder.reply(data, UNICAST)) == "10.90.0.11"
    assert responder.answer(data, UNICAST).destination == Destination("10.255.0.7", 67)


def test_a_named_relay_counts_before_a_subnet_that_contains_its_address() -> None:
    responder = Responder(*remote(relays=(RELAY,)), FAR)
    assert yiaddr(responder.reply(message(opt.DISCOVER, **FAR_DISCOVER, giaddr=RELAY), UNICAST)) == "10.90.0.11"


def test_link_selection_names_the_subnet_where_the_relay_s_address_does_not() -> None:
    link = {opt.RELAY_INFORMATION: b"\x05\x04" + address("10.90.0.0")}
    data = message(opt.DISCOVER, **FAR_DISCOVER, giaddr="10.255.0.9", options=link)
    assert yiaddr(Responder(*remote(), FAR).reply(data, UNICAST)) == "10.90.0.11"


def test_a_relay_that_nobody_knows_is_not_answered() -> None:
    assert Responder().answer(message(opt.DISCOVER, giaddr="172.16.0.1"), UNICAST).verdict == "dropped-unknown-relay"


def test_an_interface_without_a_subnet_is_not_answered() -> None:
    arrival = DIRECT._replace(addresses=(address("172.16.0.1"),))
    assert Responder().answer(message(opt.DISCOVER), arrival).verdict == "dropped-no-subnet"


def test_several_subnets_on_one_interface_are_one_link() -> None:
    second = subnet("second", "10.81.0.0/24")
    responder = Responder(rack("r01", subnet(), second), server(status_address="10.81.0.9", subnet_name="second"))
    arrival = DIRECT._replace(addresses=(address(SERVER), address("10.81.0.1")))
    reply = responder.reply(message(opt.DISCOVER), arrival)
    assert yiaddr(reply) == "10.81.0.9"
    assert reply.options[opt.BROADCAST_ADDRESS] == address("10.81.0.255")
    assert responder.answer(message(opt.DISCOVER)).verdict == "dropped-wrong-subnet"


def test_a_changed_subnet_changes_the_next_reply() -> None:
    responder = Responder()
    assert responder.reply(message(opt.DISCOVER)).options[opt.ROUTER] == address(SERVER)
    responder.table.apply(responder.inventory.put_rack(rack("r01", replace(subnet(), gateway="10.80.0.9"))))
    assert responder.reply(message(opt.DISCOVER)).options[opt.ROUTER] == address("10.80.0.9")


def test_before_the_inventory_is_complete_nobody_is_answered() -> None:
    responder = Responder()
    responder.table = ReplyTable(CONFIG)
    responder.table.apply(Delta(machines=dict(responder.inventory.snapshot().machines)))
    assert responder.answer(message(opt.DISCOVER)).verdict == "dropped-not-synced"
    responder.table.apply(responder.inventory.snapshot())
    assert responder.answer(message(opt.DISCOVER)).verdict == "offered"


# What is learnt


GUID = bytes.fromhex("0002c903000c7811")
FLEXBOOT = bytes.fromhex("ff00000000000200 0002c900") + GUID
DUID_LL = b"\xff\x00\x0c\x78\x11\x00\x03\x00\x20" + bytes(4) + bytes.fromhex("fe80000000000000") + GUID


def ipoib(hlen: int = 0, chaddr: bytes = b"", identifier: bytes | None = None, giaddr: str = RELAY) -> bytes:
    """As RFC 4390 has it: htype 32, hlen 0, no chaddr, the broadcast flag, and option 61."""
    data = message(opt.DISCOVER, giaddr=giaddr, options={opt.CLIENT_IDENTIFIER: identifier} if identifier else {})
    return b"\x01\x20" + bytes([hlen]) + data[3:10] + b"\x80\x00" + data[12:28] + chaddr.ljust(16, b"\0") + data[44:]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (ipoib(identifier=FLEXBOOT), "GUID 0x0002c903000c7811"),
        (ipoib(identifier=b"\x20" + GUID), "GUID 0x0002c903000c7811"),
        (ipoib(identifier=DUID_LL), "GUID 0x0002c903000c7811"),
        (ipoib(8, GUID), "GUID 0x0002c903000c7811"),
        (ipoib(identifier=b"\xff\x01"), "client identifier ff:01"),
        (ipoib(), "client identifier none"),
    ],
    ids=["FlexBoot", "FlexBoot by hardware type", "Linux", "iPXE", "another", "none"],
)
def test_an_ipoib_client_is_not_answered_but_reported_with_its_guid(data: bytes, words: str) -> None:
    outcome = Responder().answer(data, UNICAST)
    assert (outcome.verdict, outcome.reply) == ("dropped-infiniband-client", None)
    assert outcome.sighting is not None
    seen = observe(outcome.sighting, None)
    assert (seen.kind, seen.rack, seen.subnet, seen.client_identifier) == ("InfiniBand", "r01", "boot", words)


def test_an_ipoib_client_of_nobodys_subnet_is_counted_alone() -> None:
    outcome = Responder().answer(ipoib(identifier=FLEXBOOT, giaddr="172.16.0.1"), UNICAST)
    assert outcome == ("dropped-infiniband-client", None, None, None)


@pytest.mark.parametrize(("options", "kind"), [(PXE, "Firmware"), (IPXE, "IPXE")])
@pytest.mark.parametrize("mac", [KNOWN_MAC, UNKNOWN_MAC])
def test_a_booting_machine_is_seen_with_its_stage(options: dict[int, bytes], kind: str, mac: str) -> None:
    sighting = Responder().answer(message(opt.DISCOVER, mac, options=options)).sighting
    assert sighting is not None
    assert (sighting.kind, sighting.mac) == (kind, mac_bytes(mac))


def test_a_known_machine_s_operating_system_is_no_news_and_an_unknown_one_s_is() -> None:
    assert Responder().answer(message(opt.DISCOVER)).sighting is None
    sighting = Responder().answer(message(opt.DISCOVER, UNKNOWN_MAC)).sighting
    assert sighting is not None
    assert (sighting.kind, sighting.subnet) == ("System", ("r01", "boot"))
