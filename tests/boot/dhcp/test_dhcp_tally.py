"""What workers count of messages, and how it comes together."""

from __future__ import annotations

from provisioner.boot.dhcp.responder.respond import respond
from provisioner.boot.dhcp.responder.tally import WAIT_SECONDS, Tally
from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.wire.client import DhcpClient
from tests.boot.dhcp.messages import DIRECT, UNKNOWN_MAC, Responder, message

PXE = {opt.VENDOR_CLASS: b"PXEClient:Arch:00007:UNDI:003016", opt.CLIENT_ARCHITECTURE: b"\x00\x07"}


def counted(*messages: bytes) -> set[tuple[int, bool, DhcpClient, int]]:
    tally, responder = Tally(), Responder()
    for data in messages:
        respond(data, DIRECT, responder.table, responder.discovery, responder.now, tally.received())
    return {found for found in tally.messages() if found[-1]}


def test_a_message_is_counted_by_type_way_and_sender_whatever_it_is_answered() -> None:
    assert counted(
        message(opt.DISCOVER, options=PXE),
        message(opt.DISCOVER, options=PXE),
        message(opt.REQUEST, giaddr="10.80.0.254", options=PXE | {opt.USER_CLASS: b"iPXE"}),
        message(opt.INFORM, giaddr="192.0.2.1"),
        message(opt.RELEASE, UNKNOWN_MAC),
    ) == {
        (opt.DISCOVER, False, DhcpClient.X64_PXE, 2),
        (opt.REQUEST, True, DhcpClient.IPXE, 1),
        (opt.INFORM, True, DhcpClient.PLAIN, 1),
        (opt.RELEASE, False, DhcpClient.PLAIN, 1),
    }


def test_no_number_that_a_client_sends_is_a_type_of_its_own() -> None:
    found = counted(*(message(number, xid=number) for number in range(256)))
    assert sum(count for *_, count in found) == 256
    assert {message_type for message_type, *_ in found} == set(range(9))
    assert (0, False, DhcpClient.PLAIN, 248) in found


def test_what_cannot_be_read_is_no_message() -> None:
    assert counted(b"", b"x" * 300, bytes(400)) == set()


def test_waits_fall_into_classes_up_to_their_bounds() -> None:
    tally = Tally()
    for seconds in (0.0, WAIT_SECONDS[0], WAIT_SECONDS[0] * 1.01, WAIT_SECONDS[-1], 60.0, -5.0):
        tally.note_wait(seconds, 2)
    assert tally.waits == [6, 2, *[0] * 9, 2, 2]
    assert tally.waited_seconds > 120


def test_tallies_add_up() -> None:
    one, other = Tally(), Tally()
    for tally in (one, other):
        tally.counters["offered"] += 3
        tally.received()[opt.DISCOVER][DhcpClient.IPXE * 2] += 1
        tally.note_wait(0.002, 1)
    one.add(other)
    assert one.counters["offered"] == 6
    assert (opt.DISCOVER, False, DhcpClient.IPXE, 2) in set(one.messages())
    assert sum(one.waits) == 2
