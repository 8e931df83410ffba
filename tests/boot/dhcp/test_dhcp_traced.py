"""The workers hand over the packets of traced MAC addresses, whatever becomes of them, and of nobody else."""

from __future__ import annotations

from multiprocessing import Pipe

import pytest

from provisioner.boot.dhcp.wire import options as opt
from provisioner.boot.dhcp.workers.protocol import MOST_TRACED_OF_ONE, TracedPacket
from provisioner.boot.dhcp.workers.worker import Reporter
from tests.boot.dhcp.messages import mac_bytes, message
from tests.boot.dhcp.relay import RELAY_ADDRESS, wait_until
from tests.boot.dhcp.test_dhcp_server import RACK, discover, mac_for, registered, running

pytestmark = pytest.mark.programs


def test_packets_of_a_traced_machine_are_handed_over_with_what_became_of_them() -> None:
    ours, other, stranger = mac_for(0), mac_for(1), mac_for(1, 1)
    seen: list[TracedPacket] = []
    with running(RACK, registered(ours, 11), registered(other, 12)) as (run, relay):
        relay.exchange(discover(ours))
        run.server.trace([ours, stranger], seen.append)
        wait_until(lambda: relay.exchange(discover(ours)) is not None and len(seen) > 0, "it is traced")
        relay.exchange(discover(other, xid=77))
        relay.exchange(discover(stranger, xid=78))
        relay.send(message(9, ours, giaddr=RELAY_ADDRESS, xid=79))
        wait_until(lambda: {b"\0\0\0N", b"\0\0\0O"} <= {each.data[4:8] for each in seen}, "all of them are")
        assert {each.data[28:34] for each in seen} == {mac_bytes(ours), mac_bytes(stranger)}
        verdicts = {(each.data[4:8], each.verdict) for each in seen}
        assert (b"\0\0\0N", "offered-lent") in verdicts
        assert (b"\0\0\0O", "dropped-message-type") in verdicts
        assert all((each.reply is not None) == each.verdict.startswith("offered") for each in seen
                   if not each.verdict.startswith("forwarded"))  # fmt: skip

        run.server.trace([], seen.append)
        wait_until(lambda: not _is_traced(run.server, relay, ours, seen), "it is off")


def _is_traced(server: object, relay: object, mac: str, seen: list[TracedPacket]) -> bool:
    from time import sleep

    seen.clear()
    relay.exchange(discover(mac, xid=99))  # type: ignore[attr-defined]
    sleep(0.5)
    return bool(seen)


def test_who_floods_is_counted() -> None:
    ours = mac_for(0)
    seen: list[TracedPacket] = []
    with running(RACK, registered(ours, 11)) as (run, relay):
        run.server.trace([ours], seen.append)
        wait_until(lambda: relay.exchange(discover(ours)) is not None and len(seen) > 0, "it is traced")
        for xid in range(1000, 3000):
            relay.send(discover(ours, xid=xid, options={opt.VENDOR_CLASS: b"x"}))
        wait_until(lambda: sum(each.left_out for each in seen) > 100, "the rest is counted")
        assert len(seen) < 500


def test_who_floods_does_not_take_the_place_of_another_that_is_traced() -> None:
    ours, theirs = Pipe()
    reporter = Reporter(theirs)
    for mac in (*[mac_for(0)] * 100, mac_for(1)):
        reporter.trace(TracedPacket(discover(mac), "offered", None))
    reporter.tally.counters["offered"] += 101
    reporter.flush(1.0)
    traced = ours.recv().traced
    assert [each.data[28:34] for each in traced] == [mac_bytes(mac_for(0))] * MOST_TRACED_OF_ONE + [
        mac_bytes(mac_for(1))
    ]
    assert sum(each.left_out for each in traced) == 100 - MOST_TRACED_OF_ONE
