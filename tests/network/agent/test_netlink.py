"""Messages to the kernel and its dumps: what is put is read back, and what a batch was refused is told by its place."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from provisioner.network.agent.kernel import carry_out
from provisioner.network.agent.model.state import HOME, Address, FdbEntry, Link, Neighbour, Route
from provisioner.network.agent.netlink.entries import (
    AF_BRIDGE,
    DUMP_ADDRESSES,
    GET_ADDRESS,
    GET_NEIGHBOUR,
    GET_ROUTE,
    RouteReader,
    dump_neighbours,
    dump_routes,
    read_addresses,
    read_fdb,
    read_neighbours,
    route,
)
from provisioner.network.agent.netlink.links import DUMP_HEADER, GET, SeenLink, read_links
from provisioner.network.agent.netlink.socket import NetlinkSocket, requests_by
from provisioner.network.agent.netlink.wire import attribute, attributes, message, messages, u32
from provisioner.network.agent.operations import AddLink, ChangeLink, DeleteLink, Entry, Put, Remove
from provisioner.network.agent.rules.underlay import VXLAN_PORT
from tests.network.agent.rack import DPU, Rack

VRF_TABLE = 10001
ENTRIES: tuple[Entry, ...] = (
    Address("pf0hpf", "10.1.0.2", 32),
    Address("pf0hpf", "fd00:1::2", 128),
    Neighbour("pf0hpf", "10.1.0.3", "52:54:00:00:00:01"),
    Neighbour("vx1", "fe80::c000:202", "02:00:c0:00:02:02"),
    FdbEntry("vx1", "02:00:c0:00:02:02", "192.0.2.2"),
    Route("10.1.0.3/32", "pf0hpf", metric=64, mtu_bytes=1450),
    Route("fd00:1::3/128", "pf0hpf", metric=64, mtu_bytes=1450),
    Route("10.1.0.5/32", "vx1", "192.0.2.2", metric=64),
    Route("fd00:1::5/128", "vx1", "fe80::c000:202", metric=64),
    # As in a VRF: the table is a number beyond a byte, and what has no route in it is unreachable.
    Route("0.0.0.0/0", table=VRF_TABLE, metric=4278198272, kind="unreachable"),
    Route("::/0", table=VRF_TABLE, metric=4278198272, kind="unreachable"),
    Route("10.1.0.3/32", "pf0hpf", table=VRF_TABLE, metric=64),
    Route("10.1.0.5/32", "vx1", "192.0.2.2", table=VRF_TABLE, metric=64),
)


def a_dpu(network: Rack) -> DPU:
    dpu = network.dpu("192.0.2.1")
    dpu.ip("link", "add", "vx1", "type", "vxlan", "id", "1", "local", "192.0.2.1", "dstport", "4789", "nolearning")
    dpu.ip("link", "set", "vx1", "up")
    return dpu


def dumped() -> set[Entry]:
    """What the kernel has on pf0hpf and vx1, without what it made itself."""
    devices = {socket.if_nametoindex(name): name for name in ("pf0hpf", "vx1")}
    tables = frozenset({VRF_TABLE})
    with NetlinkSocket() as kernel:
        found: set[Entry] = set(read_addresses(kernel.dump(GET_ADDRESS, DUMP_ADDRESSES), devices))
        for family in (socket.AF_INET, socket.AF_INET6):
            found |= set(RouteReader(devices, tables).read(kernel.dump(GET_ROUTE, dump_routes(family))))
            found |= set(read_neighbours(kernel.dump(GET_NEIGHBOUR, dump_neighbours(family)), devices))
        found |= set(read_fdb(kernel.dump(GET_NEIGHBOUR, dump_neighbours(AF_BRIDGE)), devices))
    return {
        each
        for each in found
        if not (isinstance(each, Address) and each.address.startswith("fe80:"))
        and not (isinstance(each, Route) and each.destination == "fe80::/64")
    }


def test_what_is_put_is_read_back_and_what_is_removed_is_gone(network: Rack) -> None:
    dpu = a_dpu(network)

    def put_and_remove() -> None:
        assert dumped() == set()
        assert carry_out([Put(HOME, entry) for entry in ENTRIES]) == []
        assert dumped() == set(ENTRIES)
        for entry in reversed(ENTRIES):
            assert carry_out([Remove(HOME, entry)]) == []
            assert entry not in dumped()
        assert dumped() == set()
        assert carry_out([Remove(HOME, entry) for entry in ENTRIES]) == [], "what is not there is gone already"

    dpu.inside(put_and_remove)


def test_a_route_that_has_gone_or_changed_is_not_told_from_the_dump_before(network: Rack) -> None:
    dpu = a_dpu(network)
    stays, goes = Route("10.1.0.3/32", "pf0hpf", metric=64), Route("10.1.0.5/32", "pf0hpf", metric=64)
    wider = Route("10.1.0.3/32", "pf0hpf", metric=64, mtu_bytes=1450)

    def three_dumps() -> None:
        reader = RouteReader({socket.if_nametoindex("pf0hpf"): "pf0hpf"}, frozenset())

        def read() -> set[Route]:
            with NetlinkSocket() as kernel:
                return set(reader.read(kernel.dump(GET_ROUTE, dump_routes(socket.AF_INET))))

        assert carry_out([Put(HOME, stays), Put(HOME, goes)]) == []
        assert read() == read() == {stays, goes}
        assert carry_out([Remove(HOME, goes), Put(HOME, wider)]) == []
        assert read() == {wider}
        assert not reader.is_for({}, frozenset()), "an index may be another device's by then"

    dpu.inside(three_dumps)


def test_of_a_batch_of_several_writes_the_refused_are_told_and_the_others_carried_out(network: Rack) -> None:
    dpu = a_dpu(network)
    good = [Route(f"10.{high}.{low}.0/32", "pf0hpf", metric=64) for high in range(20) for low in range(250)]
    bad = {7: Route("10.66.0.0/32", "pf0hpf", "127.0.0.1", metric=64), 4000: Route("fd00::/128", "pf0hpf", "ff02::1")}

    def send() -> None:
        wanted: list[Route] = list(good)
        for place, each in bad.items():
            wanted.insert(place, each)
        with NetlinkSocket() as kernel:
            refused = kernel.send([route(each, socket.if_nametoindex, wanted=True) for each in wanted])
        assert sorted(refused) == sorted(bad)
        assert all(each.errno == errno.EINVAL and each.words for each in refused.values())
        assert len([each for each in dumped() if isinstance(each, Route)]) == len(good)

    dpu.inside(send)


def test_devices_are_made_changed_and_deleted_and_what_is_refused_is_told_in_the_kernels_words(network: Rack) -> None:
    dpu = a_dpu(network)
    vxlan = Link("vx9", "vxlan", vni=9, local="192.0.2.1")
    veth = Link("p000001-000002", "veth", peer="p000002-000001")

    def devices() -> dict[str, SeenLink]:
        with NetlinkSocket() as kernel:
            return {link.name: link for link in read_links(kernel.dump(GET, DUMP_HEADER))}

    def make_change_and_delete() -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))
        assert carry_out([AddLink(HOME, vxlan), AddLink(HOME, veth)]) == []
        made = devices()
        assert (made["vx9"].vni, made["vx9"].local, made["vx9"].port) == (9, "192.0.2.1", VXLAN_PORT)
        assert (made["vx9"].learning, made["vx9"].up) == (False, False)
        assert "p000001-000002@p000002-000001" in dpu.ip("link", "show", "p000001-000002")

        mac = "02:00:5e:00:01:01"
        assert carry_out([ChangeLink(HOME, "vx9", up=True, mtu_bytes=1400, mac=mac, master="br9")])[0].why
        dpu.ip("link", "add", "br9", "type", "bridge")
        assert carry_out([ChangeLink(HOME, "vx9", up=True, mtu_bytes=1400, mac=mac, master="br9")]) == []
        made = devices()
        assert (made["vx9"].up, made["vx9"].mtu_bytes, made["vx9"].mac) == (True, 1400, mac)
        assert made["vx9"].master == made["br9"].index
        assert carry_out([ChangeLink(HOME, "vx9", master=""), ChangeLink(HOME, "vx9", up=False)]) == []
        made = devices()
        assert (made["vx9"].up, made["vx9"].mtu_bytes, made["vx9"].master) == (False, 1400, 0)

        assert [each.why for each in carry_out([AddLink(HOME, vxlan), DeleteLink(HOME, "br9")])] == ["File exists"]
        assert carry_out([DeleteLink(HOME, "vx9"), DeleteLink(HOME, veth.name)]) == []
        assert not devices().keys() & {"vx9", "p000001-000002", "p000002-000001", "br9"}
        assert len(list(Path("/proc/self/fd").iterdir())) == before, "no socket stays open"

    dpu.inside(make_change_and_delete)


def test_a_vrf_is_asked_for_with_its_table() -> None:
    """Of which this machine's kernel may have none."""
    (request,) = requests_by(lambda batch: batch.link("add", ifname="vpc7", kind="vrf", vrf_table=VRF_TABLE))
    found = attributes(request.body, 16)
    assert (request.kind, found[3]) == (16, b"vpc7\0")
    kind_and_data = attributes(found[18])
    assert kind_and_data[1].rstrip(b"\0") == b"vrf"
    assert attributes(kind_and_data[2]) == {1: VRF_TABLE.to_bytes(4, "little")}


def test_an_entry_of_a_device_that_is_not_there_is_refused_and_no_other(network: Rack) -> None:
    dpu = a_dpu(network)
    absent, present = Route("10.1.0.9/32", "pf9hpf"), Route("10.1.0.3/32", "pf0hpf")
    (refused,) = dpu.inside(lambda: carry_out([Put(HOME, absent), Put(HOME, present)]))
    assert (refused.operation, "interface" in refused.why) == (Put(HOME, absent), True)
    assert present in dpu.inside(dumped)
    assert dpu.inside(lambda: carry_out([Remove(HOME, absent)])) == [], "it has gone with its device"


def test_operations_in_a_namespace_that_is_not_there_are_refused_one_by_one() -> None:
    operations: Sequence[Put] = [Put("vpc-0.nowhere", entry) for entry in ENTRIES[:2]]
    refused = carry_out(operations)
    assert [each.operation for each in refused] == operations
    assert all("No such file" in each.why for each in refused)


def test_a_thread_in_which_an_event_loop_runs_changes_devices_and_addresses_all_the_same(network: Rack) -> None:
    dpu = a_dpu(network)
    address = Address("pf0hpf", "10.1.0.2", 32)

    async def change() -> set[Entry]:
        assert dpu.inside(lambda: carry_out([Put(HOME, address)])) == []
        with dpu.kernel() as kernel:
            assert kernel.link("get", ifname="vx1")
        await asyncio.sleep(0)
        return dpu.inside(dumped)

    with ThreadPoolExecutor(1) as thread:  # a browser of other tests may run a loop in this one
        assert thread.submit(lambda: asyncio.run(change())).result() == {address}


def test_attributes_survive_their_way() -> None:
    data = attribute(3, b"pf0hpf\0") + u32(4, 1450) + attribute(0x8000 | 18, b"\1\2\3")
    assert attributes(data) == {3: b"pf0hpf\0", 4: (1450).to_bytes(4, "little"), 18: b"\1\2\3"}
    assert list(messages(message(24, 5, 7, data) * 2)) == [(24, 5, 7, data)] * 2


@pytest.mark.parametrize("broken", [b"", b"\0", b"\3\0\1\0", b"\xff\xff\1\0abc", b"\0\0\0\0" * 4])
def test_what_is_cut_off_or_lies_about_its_length_ends_the_reading(broken: bytes) -> None:
    assert attributes(broken) == {}
    assert attributes(u32(1, 2) + broken) == {1: b"\2\0\0\0"}
    assert list(messages(broken + bytes(4))) == []
