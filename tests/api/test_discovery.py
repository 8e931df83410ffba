"""What becomes of the words of unknown machines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api import Rack, Server
from provisioner.api.machinery.codec import decode, encode
from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.values import MacAddress
from provisioner.api.servers.discovery import (
    MAX_WAITING,
    MAX_WAITING_IN_SUBNET,
    Claims,
    DiscoverySubnets,
    RackPlace,
    Waiting,
    discovered_name,
    discovered_server,
    give_way,
    is_untouched,
    read_claims,
    refuse_flood,
)
from provisioner.cluster.resources import of
from tests.api.objects import rack, subnet

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MAC = MacAddress("52:54:00:12:34:56")
SENT = {
    "mac": "52:54:00:12:34:56",
    "uuid": "4C4C4544-0031-3010-8054-B2C04F4E4D32",
    "serial": "ABC1234",
    "manufacturer": "Dell Inc.",
    "product": "PowerEdge XE9680",
    "buildarch": "x86_64",
}


def test_claims_are_read_as_ipxe_sends_them() -> None:
    assert read_claims(SENT, source_address="10.80.0.250") == Claims(
        mac=MAC,
        architecture="x86_64",
        serial_number="ABC1234",
        system_uuid="4c4c4544-0031-3010-8054-b2c04f4e4d32",
        manufacturer="Dell Inc.",
        product="PowerEdge XE9680",
        source_address="10.80.0.250",
    )


@pytest.mark.parametrize(
    ("sent", "read"), [("i386", "x86_64"), ("arm64", "arm64"), ("ARM64", "arm64"), ("sparc", "x86_64")]
)
def test_architectures_are_those_of_the_project(sent: str, read: str) -> None:
    assert read_claims({"mac": MAC, "buildarch": sent}).architecture == read


@pytest.mark.parametrize("serial", ["", "  ", "Not Specified", "To Be Filled By O.E.M.", "Default string", "\x00\x01"])
def test_a_placeholder_is_not_a_serial_number(serial: str) -> None:
    assert read_claims({"mac": MAC, "serial": serial}).serial_number is None


@pytest.mark.parametrize("uuid", ["0" * 8 + "-0000-0000-0000-" + "0" * 12, "f" * 36, "x", ""])
def test_a_uuid_that_identifies_nothing_is_left_out(uuid: str) -> None:
    assert read_claims({"mac": MAC, "uuid": uuid}).system_uuid is None


def test_control_characters_and_length_are_cut() -> None:
    claims = read_claims({"mac": MAC, "product": "a\n\x1b[31mb\u202e" + "c" * 10_000})
    assert claims.product is not None
    assert claims.product.startswith("a [31mb c")
    assert len(claims.product) == 128


@pytest.mark.parametrize("mac", ["", "x", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "../../etc", "00:00:00:00:00:00"])
def test_without_an_interface_address_nothing_is_recorded(mac: str) -> None:
    with pytest.raises(Refused):
        read_claims(SENT | {"mac": mac})


@given(st.dictionaries(st.sampled_from(sorted(SENT)), st.text(max_size=200)))
def test_whatever_is_sent_gives_a_bounded_printable_object(sent: dict[str, str]) -> None:
    body = encode(discovered_server(read_claims(sent | {"mac": MAC}), place=None, now=NOW))
    discovery = body["status"]["discovery"]
    for value in discovery.values():
        assert value.isascii()
        assert value.isprintable()
        assert 0 < len(value) <= 128
    assert body["spec"] == {
        "bootMACAddress": MAC,
        "architecture": body["spec"]["architecture"],
        "acceptance": "Pending",
        "powerState": "On",
    }


def test_the_serial_number_of_a_stranger_stays_out_of_the_spec() -> None:
    server = discovered_server(read_claims(SENT), place=RackPlace("r01", "boot"), now=NOW)
    assert (server.spec.serial_number, server.spec.system_uuid) == (None, None)
    assert (server.spec.rack_ref, server.spec.subnet_name) == ("r01", "boot")
    assert server.status.discovery is not None
    assert server.status.discovery.serial_number == "ABC1234"
    assert server.status.discovery.first_seen_time == "2026-01-02T03:04:05Z"


RANGE = {"discoveryRangeStart": "10.80.0.240", "discoveryRangeEnd": "10.80.0.250"}
RACKS = [
    decode(Rack, rack("r01", subnets=[subnet(relays=["192.0.2.1"], **RANGE)])),
    decode(Rack, rack("r02", subnets=[subnet(cidr="10.81.0.0/24", gateway=None, relays=["192.0.2.2"])])),
]


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("10.80.0.250", RackPlace("r01", "boot")),
        ("10.80.0.7", RackPlace("r01", "boot")),
        ("192.0.2.1", RackPlace("r01", "boot")),
        ("10.81.0.7", None),
        ("192.0.2.2", None),
        ("10.82.0.7", None),
        ("not an address", None),
        (None, None),
    ],
)
def test_a_machine_is_discovered_from_a_subnet_with_a_discovery_range_or_its_relay_alone(
    address: str | None, place: RackPlace | None
) -> None:
    assert DiscoverySubnets(RACKS).find(address) == place


def test_of_two_subnets_that_hold_an_address_the_narrower_one_counts() -> None:
    wide = decode(Rack, rack("r03", subnets=[subnet(cidr="10.80.0.0/16", **RANGE)]))
    subnets = DiscoverySubnets([wide, *RACKS])
    assert subnets.find("10.80.0.7") == RackPlace("r01", "boot")
    assert subnets.find("10.80.9.7") == RackPlace("r03", "boot")


@pytest.mark.parametrize("by_dhcp", [False, True])
def test_a_flood_of_unknown_machines_ends_at_the_limit_of_its_subnet_and_of_all(by_dhcp: bool) -> None:
    here, everywhere = MAX_WAITING_IN_SUBNET * (1 + by_dhcp), MAX_WAITING * (1 + by_dhcp)
    refuse_flood(here - 1, everywhere - 1, by_dhcp=by_dhcp)
    with pytest.raises(Refused, match=f"{here} unknown machines wait already in its subnet, at most 128 may"):
        refuse_flood(here, here, by_dhcp=by_dhcp)
    with pytest.raises(Refused, match=f"{everywhere} unknown machines wait already, at most 1024 may"):
        refuse_flood(0, everywhere, by_dhcp=by_dhcp)


HERE, THERE = RackPlace("r01", "boot"), RackPlace("r02", "boot")


def waiting(name: str, minutes: float, *, place: RackPlace = HERE, by_dhcp: bool = False) -> Waiting:
    """One that appeared so long ago."""
    return Waiting(name=name, place=place, created=NOW - timedelta(minutes=minutes), by_dhcp=by_dhcp)


def test_what_nobody_touches_goes_after_an_hour_and_what_asked_by_dhcp_after_a_day() -> None:
    found = [waiting("url", 59), waiting("dhcp", 60, by_dhcp=True)]
    assert give_way(found, {HERE: 2}, NOW) == ([], 60.0)
    assert give_way(found, {HERE: 2}, NOW + timedelta(minutes=1)) == (["url"], (23 * 60 - 1) * 60.0)
    assert give_way(found, {HERE: 2}, NOW + timedelta(hours=23)) == (["dhcp", "url"], None)


def test_where_too_many_wait_the_oldest_that_only_fetched_a_url_give_way() -> None:
    here = [waiting(f"url-{number}", 30 - number / 10) for number in range(MAX_WAITING_IN_SUBNET)]
    there = [waiting("there", 50, place=THERE)]
    asks = [waiting("asks", 1, by_dhcp=True), waiting("old", 55, by_dhcp=True)]
    gone, _ = give_way([*here, *there, *asks], {HERE: len(here) + 2, THERE: 1}, NOW)
    assert gone == ["url-0", "url-1"]
    assert give_way(asks, {HERE: 200}, NOW)[0] == [], "those that ask are the administrator's to sort out"


def test_only_what_is_as_discovery_made_it_is_untouched() -> None:
    made = encode(discovered_server(read_claims(SENT), place=HERE, now=NOW))
    made["metadata"]["generation"] = 1
    assert is_untouched(made)
    touches: list[dict[str, Any]] = [{"generation": 2}, {"finalizers": ["a"]}, {"name": "r01-u01"}]
    touches += [{"labels": {"a": "b"}}, {"annotations": {"a": "b"}}]
    for changes in touches:
        assert not is_untouched({**made, "metadata": {**made["metadata"], **changes}})
    assert not is_untouched({**made, "spec": {**made["spec"], "acceptance": "Rejected"}})


def test_the_api_server_takes_a_discovered_server(cluster: Cluster) -> None:
    server = discovered_server(read_claims(SENT | {"product": "x\u0000\n'; rm -rf"}), place=None, now=NOW)
    body = encode(server)
    cluster.create(of(Server), body)
    cluster.apply_status(Server, server.name, {"discovery": body["status"]["discovery"]}, manager="provisioner-boot")
    stored = cluster.read(Server, discovered_name(MAC))
    assert (stored.spec, stored.status.discovery) == (server.spec, server.status.discovery)
    cluster.delete(of(Server), server.name)
