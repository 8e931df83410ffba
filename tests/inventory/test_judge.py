"""What the inventory says of a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.api import Condition, Rack, Server
from provisioner.api.machinery.codec import decode
from provisioner.inventory.addresses.allocate import Holders
from provisioner.inventory.addresses.judge import Judgement, ServerContext, judge
from provisioner.inventory.counts import RackCounts, Tally, network_keys, overlapping_racks, rack_status
from tests.api.objects import rack, server, subnet
from tests.cluster.scanned_index import ScannedIndex

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
THE_RACK = decode(Rack, rack())


def judged(
    body: dict[str, Any],
    *,
    the_rack: Rack | None = THE_RACK,
    rivals: dict[str, str] | None = None,
    claimed_by: dict[str, str] | None = None,
    holders: Holders | None = None,
) -> Judgement:
    surroundings = ServerContext(the_rack, rivals or {}, claimed_by or {}, holders or Holders({}, {}, {}))
    return judge(decode(Server, body), surroundings, NOW)


def test_an_accepted_server_gets_an_address() -> None:
    judgement = judged(server(acceptance="Accepted", nodePoolRef="gpu"))
    assert judgement.status == {
        "address": "10.80.0.2",
        "subnetName": "boot",
        "conditions": [
            {
                "type": "Discovered",
                "status": "True",
                "reason": "Registered",
                "message": "Registered with boot MAC address 52:54:00:12:34:56",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            },
            {
                "type": "Accepted",
                "status": "True",
                "reason": "Accepted",
                "message": "Boots in subnet boot of Rack r01 with address 10.80.0.2",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            },
        ],
    }
    assert judgement.allocates


@pytest.mark.parametrize(
    ("changes", "rivals", "the_rack", "reason", "words"),
    [
        ({}, {}, THE_RACK, "Pending", "kubectl provision accept r01-u01 --pool POOL"),
        ({"nodePoolRef": "gpu"}, {}, THE_RACK, "Pending", "kubectl provision accept r01-u01"),
        ({"rackRef": None}, {}, None, "Pending", "--pool POOL --rack RACK"),
        ({"acceptance": "Rejected"}, {"a": "x"}, THE_RACK, "Rejected", "kubectl provision accept r01-u01"),
        ({"acceptance": "Accepted"}, {}, None, "NoRack", "Rack r01 does not exist"),
        ({"acceptance": "Accepted", "rackRef": None}, {}, None, "NoRack", "--rack RACK"),
        ({"acceptance": "Accepted", "subnetName": "x"}, {}, THE_RACK, "NoSubnet", "it has boot"),
        (
            {"acceptance": "Accepted"},
            {"r01-u00": "MAC address 52:54:00:12:34:56"},
            THE_RACK,
            "Duplicate",
            "Server r01-u01 claims what Server r01-u00 (MAC address 52:54:00:12:34:56) has already",
        ),
    ],
)
def test_who_gets_none_is_told_why(
    changes: dict[str, Any], rivals: dict[str, str], the_rack: Rack | None, reason: str, words: str
) -> None:
    judgement = judged(server(**changes), rivals=rivals, the_rack=the_rack)
    assert (judgement.accepted.status, judgement.accepted.reason) == ("False", reason)
    assert words in judgement.accepted.message
    assert judgement.address is None
    assert not judgement.allocates


@pytest.mark.parametrize(
    ("changes", "rivals", "kept"),
    [
        ({"acceptance": "Pending"}, {}, "10.80.0.9"),
        ({"acceptance": "Rejected"}, {}, None),
        ({"acceptance": "Accepted"}, {"a": "x"}, "10.80.0.9"),
        ({"acceptance": "Accepted", "bootAddress": "10.99.0.1"}, {}, "10.80.0.9"),
        ({"acceptance": "Accepted", "subnetName": "gone"}, {}, None),
    ],
)
def test_an_address_stays_while_a_person_sorts_things_out(
    changes: dict[str, Any], rivals: dict[str, str], kept: str | None
) -> None:
    body = server(**changes) | {"status": {"address": "10.80.0.9", "subnetName": "boot"}}
    assert judged(body, rivals=rivals, holders=Holders({"10.80.0.9": ["r01-u01"]}, {}, {})).address == kept


def test_a_server_without_an_address_is_judged_again_soon_as_no_event_says_that_one_is_free() -> None:
    assert judged(server(acceptance="Accepted", subnetName="x")).requeue_after_seconds == 15
    assert judged(server(acceptance="Accepted")).requeue_after_seconds is None


def test_without_a_pool_the_message_says_how_to_give_one() -> None:
    assert "provision accept r01-u01 --pool POOL" in judged(server(acceptance="Accepted")).accepted.message


def test_an_unknown_machine_is_described_and_compared_with_what_is_registered() -> None:
    body = server("unknown-525400123456")
    body["status"] = {"discovery": {"product": "XE9680", "serialNumber": "ABC1", "address": "10.80.0.250"}}
    message = judged(body, claimed_by={"r01-u07": "serial number"}).discovered.message
    assert "said (unproven): product XE9680, serial number ABC1, address 10.80.0.250" in message
    assert "Server r01-u07 has the same serial number and another boot MAC address" in message
    assert "set its spec.bootMACAddress to 52:54:00:12:34:56" in message


def test_a_transition_time_changes_with_the_status_alone() -> None:
    first = judged(server(acceptance="Accepted"))
    body = server(acceptance="Accepted", nodePoolRef="gpu") | {"status": first.status}
    later = judge(
        decode(Server, body),
        ServerContext(THE_RACK, {}, {}, Holders({"10.80.0.2": ["r01-u01"]}, {}, {})),
        NOW + timedelta(hours=1),
    )
    assert later.accepted.message != first.accepted.message
    assert later.accepted.last_transition_time == first.accepted.last_transition_time
    assert not later.allocates


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
TWICE = {"conditions": [{"type": "Ready", "status": "Unknown"}, {"type": "Ready", "status": "False"}]}
SERVERS = [
    server("a", acceptance="Accepted", nodePoolRef="gpu") | {"status": READY | {"imageRef": "gpu-node-9f9f9f9f9f9f"}},
    server("b", acceptance="Accepted", nodePoolRef="gpu") | {"status": TWICE | {"imageRef": "old"}},
    server("c", nodePoolRef="gpu"),
    server("d", acceptance="Accepted", nodePoolRef="gpu", powerState="Off"),
    server("e", acceptance="Accepted", rackRef="r02", nodePoolRef="other") | {"status": READY},
]


def only(status: dict[str, Any]) -> Condition:
    (condition,) = status["conditions"]
    return condition["status"], condition["reason"], condition["message"]  # type: ignore[return-value]


def counted(*servers: dict[str, Any], rack: str = "r01") -> Tally:
    counts = RackCounts()
    for body in servers:
        counts.change(None, body)
    return counts.of(rack)


def test_counts_follow_each_change_and_name_whom_it_concerns() -> None:
    counts = RackCounts()
    before, after = SERVERS[0], server(SERVERS[0]["metadata"]["name"], rackRef="r02")
    assert counts.change(None, before) == {"r01"}
    assert counts.change(before, before | {"metadata": {}}) == set()
    assert counts.change(before, after) == {"r01", "r02"}
    assert counts.of("r01") == {}
    assert counts.of("r02") == {"all": 1, "pending": 1}


def test_racks_that_overlap_are_found_by_their_networks() -> None:
    racks = [rack("a"), rack("same"), rack("wider", subnets=[subnet(cidr="10.80.0.0/16")])]
    racks += [
        rack("inside", subnets=[subnet(cidr="10.80.0.64/26")]),
        rack("far", subnets=[subnet(cidr="10.81.0.0/24")]),
    ]
    index = ScannedIndex(lambda: racks, network_keys)
    assert [other["metadata"]["name"] for other in overlapping_racks(racks[0], index)] == ["inside", "wider"]
    assert [other["metadata"]["name"] for other in overlapping_racks(racks[2], index)] == ["a", "inside", "same"]


def test_a_rack_counts_its_servers() -> None:
    status = rack_status(THE_RACK, counted(*SERVERS), [THE_RACK], NOW)
    assert {key: status[key] for key in ("servers", "readyServers", "pendingServers")} == {
        "servers": 4,
        "readyServers": 1,
        "pendingServers": 1,
    }
    words = "1 of 4 servers Ready; 1 pending acceptance: kubectl provision accept SERVER"
    assert only(status) == ("False", "ServersNotReady", words)
    assert only(rack_status(THE_RACK, counted(SERVERS[0]), [], NOW))[:2] == ("True", "ServersReady")  # type: ignore[index]
    assert only(rack_status(THE_RACK, {}, [], NOW))[:2] == ("True", "NoServers")  # type: ignore[index]


def test_racks_may_share_a_subnet_but_not_overlap() -> None:
    same = decode(Rack, rack("r02"))
    wider = decode(Rack, rack("r03", subnets=[subnet(cidr="10.80.0.0/16")]))
    assert only(rack_status(THE_RACK, {}, [THE_RACK, same], NOW))[0] == "True"  # type: ignore[index]
    status, reason, message = only(rack_status(THE_RACK, {}, [THE_RACK, same, wider], NOW))  # type: ignore[misc]
    assert (status, reason) == ("False", "SubnetsOverlap")
    assert "subnet boot (10.80.0.0/24) overlaps subnet boot (10.80.0.0/16) of Rack r03" in message
