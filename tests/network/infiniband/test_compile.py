"""Who is a member of what: by attachments, registered ports and claims, and by nothing else."""

from __future__ import annotations

import json
from typing import Any

from provisioner.api import InfiniBandFabric
from provisioner.api.machinery.codec import to_json
from provisioner.network.infiniband.compile import Compiled, compile_network
from provisioner.network.infiniband.fabric_status import fabric_status
from tests.network.infiniband.site import NOON, attachment, claim, fabric, guid, pool, server, vpc

BLUE, RED = vpc("blue"), vpc("red", ipoib=True)
GOOD: dict[str, Any] = {
    "vpcs": [BLUE, RED],
    "attachments": [attachment("blue", "s1"), attachment("red", "s2")],
    "servers": [server("s1", "blue", [guid(1), guid(2)]), server("s2", "red", [guid(3)])],
    "claims": [claim(0x101, BLUE), claim(0x102, RED)],
}


def compiled(of: InfiniBandFabric | None = None, **changes: Any) -> Compiled:
    return compile_network(of or fabric(), pool=pool((0x100, 0x1FF)), **{**GOOD, **changes})


def members(of: InfiniBandFabric | None = None, **changes: Any) -> dict[int, tuple[str, ...]]:
    return {each.pkey: each.guids for each in compiled(of, **changes).spec.partitions}


def test_all_ports_of_an_attached_server_are_in_the_partition_of_its_vpc() -> None:
    assert members() == {0x101: (guid(1), guid(2)), 0x102: (guid(3),)}
    assert [(each.vpc, each.ip_over_ib) for each in compiled().spec.partitions] == [
        ("blue/main", False),
        ("red/main", True),
    ]
    assert compiled().ports == 3


def test_the_same_whatever_the_order() -> None:
    backwards = {name: [*reversed(objects)] for name, objects in GOOD.items()}
    assert compiled(**backwards) == compiled()


def test_another_tenants_attachment_of_a_server_gives_nothing() -> None:
    theirs = [*GOOD["attachments"], attachment("red", "s1")]
    assert members(attachments=theirs) == members()


def test_a_server_without_tenant_is_in_no_partition() -> None:
    assert members(servers=[server("s1", None, [guid(1)]), GOOD["servers"][1]]) == {0x102: (guid(3),)}


def test_who_is_quarantined_or_going_is_in_no_partition() -> None:
    gone = {"deletionTimestamp": "2026-01-02T03:04:05Z"}
    going = attachment("red", "s2", **gone)
    assert members(attachments=[attachment("blue", "s1", quarantined=True), going]) == {}
    assert members(vpcs=[BLUE, vpc("red", **gone)]) == {0x101: (guid(1), guid(2))}


def test_a_server_that_the_administrators_have_quarantined_is_in_no_partition_whatever_its_tenant_says() -> None:
    held = server("s1", "blue", [guid(1)], networkQuarantined=True)
    said = [attachment("blue", "s1", quarantined=False), attachment("red", "s2")]
    assert members(attachments=said, servers=[held, GOOD["servers"][1]]) == {0x102: (guid(3),)}


def test_a_port_is_in_no_more_partitions_than_its_table_has_room_for() -> None:
    """Else a tenant could attach a server to VPC after VPC, until no port of the fabric is acknowledged any more."""
    many = [vpc("blue", f"v{n}") for n in range(200)]
    found = compiled(
        vpcs=[*many, RED],
        attachments=[*(attachment("blue", "s1", each.name) for each in many), attachment("red", "s2")],
        claims=[*(claim(0x200 + n, each) for n, each in enumerate(many)), claim(0x7000, RED)],
    )
    of_one = [each.pkey for each in found.spec.partitions if guid(1) in each.guids]
    assert of_one == [0x200 + n for n in range(31)]
    assert found.spec.partitions[-1].guids == (guid(3),), "another tenant's port is in its own"
    assert found.left_out == tuple(sorted(f"blue/v{n}" for n in range(31, 200))), "each of these is told"


def test_a_tenant_with_more_members_than_a_fabrics_object_holds_loses_partitions_and_no_other_tenant_does() -> None:
    """Else the API server would refuse the object, and with it every change of every tenant on the fabric."""
    vpcs = [vpc("blue", f"v{n}") for n in range(31)]
    guids = [guid(0x1000 + n) for n in range(2000)]
    large = compiled(
        vpcs=[*vpcs, RED],
        servers=[server("s1", "blue", guids), GOOD["servers"][1]],
        attachments=[*(attachment("blue", "s1", each.name) for each in vpcs), attachment("red", "s2")],
        claims=[*(claim(0x200 + n, each) for n, each in enumerate(vpcs)), claim(0x7000, RED)],
    )
    assert len(json.dumps(to_json(large.spec))) < 1_300_000
    assert large.spec.partitions[-1].guids == (guid(3),), "another tenant's port is in its own"
    told = {each.vpc for each in large.spec.partitions}
    assert 0 < len(large.left_out) < 31
    assert told.isdisjoint(large.left_out)
    status = fabric_status(fabric(), large, None, NOON)
    (said,) = [each for each in status.conditions if each.type == "PartitionsFit"]
    assert (said.status, said.reason) == ("False", "TooManyMembers")
    assert large.left_out[0] in said.message


def test_a_server_that_nobody_accepted_is_in_no_partition() -> None:
    pending = server("s1", "blue", [guid(1)], acceptance="Pending")
    assert members(servers=[pending, GOOD["servers"][1]]) == {0x102: (guid(3),)}


def test_a_vpc_has_the_p_key_that_is_claimed_for_it_and_no_other() -> None:
    earlier = vpc("blue", uid="another")
    assert members(claims=[claim(0x101, earlier), claim(0x102, RED)]) == {0x102: (guid(3),)}
    released = claim(0x101, BLUE, released="2026-01-02T03:04:05Z")
    assert members(claims=[released, claim(0x102, RED)]) == {0x102: (guid(3),)}


def test_a_vpc_that_asks_for_no_partition_has_none() -> None:
    without = vpc("blue", partition=False)
    assert members(vpcs=[without, RED], claims=[claim(0x101, without), claim(0x102, RED)]) == {0x102: (guid(3),)}


def test_a_port_that_two_servers_have_registered_is_in_no_partition_and_told_of() -> None:
    servers = [server("s1", "blue", [guid(1), guid(2)]), server("s2", "red", [guid(2), guid(3)])]
    assert members(servers=servers) == {0x101: (guid(1),), 0x102: (guid(3),)}
    assert compiled(servers=servers).doubled == (guid(2),)


def test_a_fabric_has_its_own_ports_alone() -> None:
    servers = [server("s1", "blue", [guid(1)], fabric="rail-1"), server("s2", "red", [guid(3)])]
    assert members(fabric("rail-1"), servers=servers) == {0x101: (guid(1),)}
    assert members(fabric(), servers=servers) == {0x102: (guid(3),)}


def test_a_servers_port_is_never_shared() -> None:
    of = fabric(sharedGuids=[guid(1), guid(9)])
    assert compiled(of).spec.shared_guids == (guid(9),)
    assert compiled(of).shared_of_servers == (guid(1),)
