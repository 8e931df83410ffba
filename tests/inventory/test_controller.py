"""The inventory controllers at work, on a real API server."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from provisioner.api import Rack, Server
from provisioner.api.machinery.conditions import find_condition
from provisioner.cluster.resources import EVENTS, of
from tests.api.objects import address_block, rack, subnet
from tests.inventory.site import Site, eventually

if TYPE_CHECKING:
    from provisioner.cluster.client import Cluster


def test_a_registered_rack_gets_addresses_once_and_keeps_them(
    site: Site, cluster: Cluster, leadership: Callable[[], Callable[[], None]]
) -> None:
    site.add_rack()
    names = [site.add(number) for number in range(1, 21)]
    end = leadership()
    for name in names:
        eventually(lambda name=name: (site.accepted(name) or ("",))[0] == "True", f"{name} is accepted")
    addresses = {name: cluster.read(Server, name).status.address for name in names}
    assert sorted(addresses.values(), key=str) == sorted((site.address(n) for n in range(2, 22)), key=str)
    assert all(cluster.read(Server, name).status.subnet_name == "boot" for name in names)

    end()
    leadership()  # another leader, with nothing in its memory
    late = site.add(21)
    site.becomes(late, "True", "Accepted", site.address(22))
    assert {name: cluster.read(Server, name).status.address for name in names} == addresses

    events = eventually(
        lambda: [
            item["message"]
            for item in cluster.list(EVENTS, field_selector=f"involvedObject.name={late}").items
            if item["reason"] == "AddressAllocated"
        ],
        "an Event tells of the address",
    )
    assert events == [f"Address {site.address(22)} in subnet boot"]


def test_two_leaders_at_once_give_no_address_twice(
    site: Site, cluster: Cluster, leadership: Callable[[], Callable[[], None]]
) -> None:
    site.add_rack()
    leadership()
    leadership()
    names = [
        site.add(number, **({"bootAddress": site.address(200)} if number == 12 else {})) for number in range(1, 25)
    ]
    for name in names:
        eventually(lambda name=name: (site.accepted(name) or ("",))[0] == "True", f"{name} is accepted")
    given = {name: str(cluster.read(Server, name).status.address) for name in names}
    assert len(set(given.values())) == len(names)
    assert {address: name for name, address in given.items()}.items() <= site.claims().items()


def test_a_claim_that_its_maker_left_behind_is_taken_up_and_that_of_a_server_that_is_gone_is_freed(
    site: Site, cluster: Cluster, leadership: Callable[[], Callable[[], None]]
) -> None:
    site.add_rack()
    claims = {site.address(7): f"{site.name}-u01", site.address(2): f"{site.name}-gone"}
    cluster.apply(address_block(site.address(0), claims=claims), manager="tests")
    name = site.add(1)
    leadership()
    site.becomes(name, "True", "Accepted", site.address(7))
    eventually(lambda: site.claims() == {site.address(7): name}, "2 is freed")
    site.becomes(site.add(2), "True", "Accepted", site.address(2))
    cluster.delete(of(Server), name)
    eventually(lambda: site.address(7) not in site.claims(), "7 is freed")


def test_addresses_of_before_there_were_claims_are_kept_and_claimed(
    site: Site, cluster: Cluster, leadership: Callable[[], Callable[[], None]]
) -> None:
    site.add_rack()
    names = [site.add(number) for number in (1, 2)]
    for name, host in zip(names, (2, 9), strict=True):
        status = {"address": site.address(host), "subnetName": "boot"}
        cluster.apply_status(Server, name, status, manager="provisioner-inventory")
    leadership()
    for name, host in zip(names, (2, 9), strict=True):
        site.becomes(name, "True", "Accepted", site.address(host))
    wanted = {site.address(2): names[0], site.address(9): names[1]}
    eventually(lambda: site.claims() == wanted, "both are claimed")
    site.becomes(site.add(3), "True", "Accepted", site.address(3))


def test_a_server_that_waits_says_for_what_and_goes_on_when_it_comes(
    site: Site, cluster: Cluster, leadership: Callable[[], Callable[[], None]]
) -> None:
    leadership()
    orphan = site.add(1)
    site.becomes(orphan, "False", "NoRack", None)
    site.add_rack()
    site.becomes(orphan, "True", "Accepted", site.address(2))

    pending = site.add(2, acceptance="Pending")
    site.becomes(pending, "False", "Pending", None)
    cluster.patch(of(Server), pending, {"spec": {"acceptance": "Accepted"}})
    site.becomes(pending, "True", "Accepted", site.address(3))
    cluster.patch(of(Server), pending, {"spec": {"acceptance": "Rejected"}})
    site.becomes(pending, "False", "Rejected", None)


def test_of_two_servers_with_one_mac_address_the_second_gets_no_address(
    site: Site, cluster: Cluster, leadership: Callable[[], Callable[[], None]]
) -> None:
    site.add_rack()
    first = site.add(1)
    leadership()
    site.becomes(first, "True", "Accepted", site.address(2))
    second = site.add(2, bootMACAddress=site.mac(1), serialNumber="A")
    third = site.add(3, serialNumber="a")
    site.becomes(second, "False", "Duplicate", None)
    site.becomes(third, "False", "Duplicate", None)
    found = find_condition(cluster.read(Server, second).status.conditions, "Accepted")
    assert found is not None
    assert f"Server {second} claims what Server {first} (MAC address {site.mac(1)}) has already" in found.message
    assert f"kubectl delete server {second}" in found.message
    assert site.accepted(first) == ("True", "Accepted", site.address(2))

    cluster.delete(of(Server), first)
    eventually(lambda: (site.accepted(second) or ("",))[0] == "True", "the second one takes its place")
    assert site.accepted(third) == ("False", "Duplicate", None)


def test_a_pinned_address_is_given_and_a_taken_one_is_named(
    site: Site, cluster: Cluster, leadership: Callable[[], Callable[[], None]]
) -> None:
    site.add_rack()
    leadership()
    first = site.add(1, bootAddress=site.address(2))
    site.becomes(first, "True", "Accepted", site.address(2))
    second = site.add(2)
    site.becomes(second, "True", "Accepted", site.address(3))
    third = site.add(3, bootAddress=site.address(3))
    site.becomes(third, "False", "AddressInUse", None)
    cluster.patch(of(Server), third, {"spec": {"bootAddress": site.address(9)}})
    site.becomes(third, "True", "Accepted", site.address(9))


def test_the_status_of_others_is_not_touched(
    site: Site, cluster: Cluster, leadership: Callable[[], Callable[[], None]]
) -> None:
    site.add_rack()
    name = site.add(1)
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "R",
        "message": "m",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    theirs = {"bootID": "x", "conditions": [ready]}
    cluster.apply_status(Server, name, theirs, manager="provisioner-boot-controller")
    leadership()
    site.becomes(name, "True", "Accepted", site.address(2))
    status = cluster.read(Server, name).status
    assert status.boot_id == "x"
    assert {condition.type for condition in status.conditions} == {"Ready", "Discovered", "Accepted"}


def test_racks_count(site: Site, cluster: Cluster, leadership: Callable[[], Callable[[], None]]) -> None:
    site.add_rack()
    leadership()
    names = [site.add(number, nodePoolRef=site.name) for number in (1, 2)]
    site.add(3, acceptance="Pending")
    condition = {"reason": "R", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    status = {"conditions": [{"type": "Ready", "status": "True", **condition}]}
    cluster.apply_status(Server, names[0], status, manager="provisioner-boot-controller")

    def counts() -> tuple[int | None, ...]:
        of_rack = cluster.read(Rack, site.name).status
        return of_rack.servers, of_rack.ready_servers, of_rack.pending_servers

    eventually(lambda: counts() == (3, 1, 1), "the counts are right")
    cluster.delete(of(Server), names[1])
    eventually(lambda: counts() == (2, 1, 1), "a deleted server is not counted")


def test_a_rack_whose_subnet_overlaps_another_says_so_until_it_does_not(
    site: Site, cluster: Cluster, leadership: Callable[[], Callable[[], None]]
) -> None:
    site.add_rack()
    other = f"{site.name}-other"
    leadership()

    def reason() -> str | None:
        found = find_condition(cluster.read(Rack, site.name).status.conditions, "Ready")
        return found.reason if found else None

    eventually(lambda: reason() == "NoServers", "a rack by itself is fine")
    half = {"cidr": f"{site.address(0)}/25", "gateway": None}
    cluster.apply(rack(other, subnets=[{k: v for k, v in subnet(**half).items() if v}]), manager="tests")
    eventually(lambda: reason() == "SubnetsOverlap", "an overlap is noticed")
    cluster.delete(of(Rack), other)
    eventually(lambda: reason() == "NoServers", "and that it is gone")
