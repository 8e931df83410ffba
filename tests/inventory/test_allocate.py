"""Which address a server gets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api import ObjectMeta, Rack, Server
from provisioner.api.machinery.codec import decode
from provisioner.api.servers.server import ServerSpec, ServerStatus
from provisioner.inventory.addresses.allocate import Allocation, Holders, NoAddress, allocate, scan
from provisioner.inventory.addresses.subnets import FreeAddresses
from tests.api.objects import rack, subnet

NOBODY = Holders({}, {}, {})


def a_rack(*subnets: dict[str, Any], **changes: Any) -> Rack:
    return decode(Rack, rack(subnets=list(subnets) or [subnet(**changes)]))


def a_server(
    name: str = "b", *, has: str | None = None, pins: str | None = None, subnet_name: str | None = None
) -> Server:
    return Server(
        metadata=ObjectMeta(name=name),
        spec=ServerSpec(
            boot_mac_address="52:54:00:00:00:01", rack_ref="r01", boot_address=pins, subnet_name=subnet_name
        ),
        status=ServerStatus(address=has, subnet_name="boot" if has else None),
    )


def given_to(**addresses: str) -> Holders:
    return Holders({f"10.80.0.{number}": [name] for name, number in addresses.items()}, {}, {})


def read_holders(servers: Iterable[dict[str, Any]]) -> Holders:
    """Holders by the JSON of all servers."""
    given: dict[str, list[str]] = {}
    pinned: dict[str, list[str]] = {}
    for body in servers:
        for names, found in ((given, body["status"].get("address")), (pinned, body["spec"].get("bootAddress"))):
            names.setdefault(found, []).append(body["metadata"]["name"])
    return Holders(given, pinned, {})


def address(answer: Allocation | NoAddress) -> str:
    assert isinstance(answer, Allocation), answer
    return answer.address


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({}, "10.80.0.2"),
        ({"gateway": None}, "10.80.0.1"),
        ({"gateway": "10.80.0.254"}, "10.80.0.1"),
        ({"rangeStart": "10.80.0.20"}, "10.80.0.20"),
        ({"relays": ["10.80.0.2", "10.80.0.3"]}, "10.80.0.4"),
        ({"dnsServers": ["10.80.0.2"], "ntpServers": ["10.80.0.3"]}, "10.80.0.4"),
        ({"discoveryRangeStart": "10.80.0.1", "discoveryRangeEnd": "10.80.0.9"}, "10.80.0.10"),
        ({"cidr": "10.0.0.0/8", "gateway": "10.0.0.1"}, "10.0.0.2"),
    ],
)
def test_the_lowest_free_address_is_given_that_is_nothing_else(changes: dict[str, Any], first: str) -> None:
    answer = allocate(a_server(), a_rack(**changes), NOBODY)
    assert answer == Allocation(first, "boot", new=True)


def test_what_others_have_or_pin_is_not_given() -> None:
    holders = Holders({"10.80.0.2": ["a"]}, {"10.80.0.3": ["c"]}, {})
    assert address(allocate(a_server(), a_rack(), holders)) == "10.80.0.4"


def test_an_address_stays_with_its_server() -> None:
    answer = allocate(a_server(has="10.80.0.77"), a_rack(), given_to(b="77"))
    assert answer == Allocation("10.80.0.77", "boot", new=False)


@pytest.mark.parametrize("changes", [{"rangeStart": "10.80.0.100"}, {"rangeEnd": "10.80.0.50"}])
def test_a_narrower_range_moves_nobody(changes: dict[str, Any]) -> None:
    assert address(allocate(a_server(has="10.80.0.77"), a_rack(**changes), given_to(b="77"))) == "10.80.0.77"


@pytest.mark.parametrize(
    "changes",
    [
        {"cidr": "10.81.0.0/24", "gateway": None},
        {"gateway": "10.80.0.77"},
        {"relays": ["10.80.0.77"]},
        {"discoveryRangeStart": "10.80.0.70", "discoveryRangeEnd": "10.80.0.80"},
        {"cidr": "10.80.0.76/30", "gateway": "10.80.0.77"},
    ],
)
def test_an_address_that_no_longer_fits_is_replaced(changes: dict[str, Any]) -> None:
    answer = allocate(a_server(has="10.80.0.77"), a_rack(**changes), given_to(b="77"))
    assert isinstance(answer, Allocation)
    assert answer.new
    assert answer.address != "10.80.0.77"


def test_of_two_servers_with_one_address_the_first_keeps_it() -> None:
    both = Holders({"10.80.0.7": ["a", "b"]}, {}, {})
    assert address(allocate(a_server("a", has="10.80.0.7"), a_rack(), both)) == "10.80.0.7"
    assert address(allocate(a_server("b", has="10.80.0.7"), a_rack(), both)) == "10.80.0.2"


def test_who_has_an_address_alone_keeps_it_whoever_claims_it() -> None:
    """Were it to move, its machine would go on using an address that is free for the next server."""
    forged = Holders({"10.80.0.7": ["b"]}, {}, {"10.80.0.7": ["a"]})
    assert allocate(a_server("b", has="10.80.0.7"), a_rack(), forged) == Allocation("10.80.0.7", "boot", new=False)
    assert address(allocate(a_server("a"), a_rack(), forged, claims=["10.80.0.7"])) == "10.80.0.2"


def test_of_two_servers_with_one_address_the_one_that_has_claimed_it_keeps_it() -> None:
    both = Holders({"10.80.0.7": ["a", "b"]}, {}, {"10.80.0.7": ["b"]})
    assert address(allocate(a_server("a", has="10.80.0.7"), a_rack(), both)) == "10.80.0.2"
    assert address(allocate(a_server("b", has="10.80.0.7"), a_rack(), both)) == "10.80.0.7"


def test_a_pinned_address_wins_over_the_one_it_has_and_over_the_range() -> None:
    answer = allocate(a_server(has="10.80.0.7", pins="10.80.0.9"), a_rack(rangeStart="10.80.0.100"), given_to(b="7"))
    assert answer == Allocation("10.80.0.9", "boot", new=True)
    again = allocate(a_server(has="10.80.0.9", pins="10.80.0.9"), a_rack(), given_to(b="9"))
    assert again == Allocation("10.80.0.9", "boot", new=False)


def test_a_pinned_address_that_another_has_is_a_conflict_with_a_name() -> None:
    answer = allocate(a_server(pins="10.80.0.9"), a_rack(), given_to(a="9"))
    assert answer == NoAddress(
        "AddressInUse",
        "spec.bootAddress 10.80.0.9 is the address of Server a; pin another one, or pin one for a first",
    )


def test_a_server_whose_address_another_pins_is_not_moved() -> None:
    holders = Holders({"10.80.0.9": ["b"]}, {"10.80.0.9": ["a"]}, {})
    assert address(allocate(a_server("b", has="10.80.0.9"), a_rack(), holders)) == "10.80.0.9"


@pytest.mark.parametrize(
    ("pinned", "words"),
    [
        ("10.99.0.9", "10.99.0.9 is outside subnet boot (10.80.0.0/24)"),
        ("10.80.0.0", "is the network or broadcast address"),
        ("10.80.0.255", "is the network or broadcast address"),
        ("10.80.0.1", "is the gateway"),
        ("nonsense", "is not an IPv4 address"),
    ],
)
def test_a_pinned_address_that_cannot_be_is_explained(pinned: str, words: str) -> None:
    answer = allocate(a_server(pins=pinned, has="10.80.0.7"), a_rack(), given_to(b="7"))
    assert isinstance(answer, NoAddress)
    assert answer.reason == "AddressUnusable"
    assert words in answer.message
    assert answer.keeps


def test_a_full_subnet_says_so() -> None:
    tiny = a_rack(cidr="10.80.0.0/30", gateway="10.80.0.1")
    answer = allocate(a_server(), tiny, given_to(a="2"))
    assert isinstance(answer, NoAddress)
    assert answer.reason == "SubnetFull"
    assert "has no free address" in answer.message


def test_the_named_subnet_is_used_and_a_wrong_name_is_explained() -> None:
    two = a_rack(subnet(), subnet(name="b", cidr="10.81.0.0/24", gateway=None))
    assert allocate(a_server(subnet_name="b"), two, NOBODY) == Allocation("10.81.0.1", "b", new=True)
    answer = allocate(a_server(subnet_name="c"), two, NOBODY)
    assert answer == NoAddress("NoSubnet", "Rack r01 has no subnet c; it has boot, b")


@given(st.lists(st.sampled_from(["new", "gone", "pin"]), max_size=40), st.randoms(use_true_random=False))
def test_whatever_comes_and_goes_no_two_servers_have_one_address(events: list[str], random: Any) -> None:
    the_rack = a_rack(cidr="10.80.0.0/27", gateway="10.80.0.1")
    stored: dict[str, dict[str, Any]] = {}
    for number, event in enumerate(events):
        if event == "gone" and stored:
            del stored[random.choice(sorted(stored))]
            continue
        pins = f"10.80.0.{random.randrange(0, 40)}" if event == "pin" else None
        server = a_server(f"s{number:02d}", pins=pins)
        stored[server.name] = {
            "metadata": {"name": server.name},
            "spec": {"bootAddress": pins} if pins else {},
            "status": {},
        }
        answer = allocate(server, the_rack, read_holders(stored.values()))
        if isinstance(answer, Allocation):
            stored[server.name]["status"]["address"] = answer.address
    given_addresses = [body["status"]["address"] for body in stored.values() if "address" in body["status"]]
    assert len(given_addresses) == len(set(given_addresses))
    assert not {"10.80.0.0", "10.80.0.1", "10.80.0.31"} & set(given_addresses)


def test_what_another_has_claimed_is_not_given_and_cannot_be_pinned() -> None:
    claimed = Holders({}, {}, {"10.80.0.2": ["a"]})
    assert address(allocate(a_server(), a_rack(), claimed)) == "10.80.0.3"
    answer = allocate(a_server(pins="10.80.0.2"), a_rack(), claimed)
    assert isinstance(answer, NoAddress)
    assert (answer.reason, "Server a" in answer.message) == ("AddressInUse", True)


def test_a_claim_that_was_not_taken_yet_is_taken_up() -> None:
    claimed = Holders({}, {}, {"10.80.0.9": ["b"]})
    assert address(allocate(a_server(), a_rack(), claimed, claims=["10.80.0.9"])) == "10.80.0.9"
    pinned = Holders({}, {"10.80.0.9": ["c"]}, {"10.80.0.9": ["b"]})
    assert address(allocate(a_server(), a_rack(), pinned, claims=["10.80.0.9"])) == "10.80.0.2"


def test_of_two_servers_with_one_address_who_claimed_it_keeps_it() -> None:
    both = Holders({"10.80.0.7": ["a", "b"]}, {}, {"10.80.0.7": ["b"]})
    assert address(allocate(a_server("b", has="10.80.0.7"), a_rack(), both)) == "10.80.0.7"
    assert address(allocate(a_server("a", has="10.80.0.7"), a_rack(), both)) == "10.80.0.2"


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 14)), max_size=60))
def test_the_lowest_free_address_is_found_without_looking_below_it_again(changes: list[tuple[bool, int]]) -> None:
    small = a_rack(cidr="10.80.0.0/28", gateway=None).spec.subnets[0]
    free, taken = FreeAddresses(), set[str]()
    for takes, number in changes:
        if takes and (lowest := free.lowest(small, lambda candidate: candidate not in taken)):
            taken.add(lowest)
        elif f"10.80.0.{number}" in taken:
            taken.remove(f"10.80.0.{number}")
            free.freed(f"10.80.0.{number}")
        assert free.lowest(small, lambda candidate: candidate not in taken) == scan(small, lambda c: c not in taken)


def test_ten_thousand_addresses_are_found_in_as_many_looks() -> None:
    wide = a_rack(cidr="10.80.0.0/16", gateway=None).spec.subnets[0]
    free, taken, looks = FreeAddresses(), set[str](), 0

    def is_free(candidate: str) -> bool:
        nonlocal looks
        looks += 1
        return candidate not in taken

    for _ in range(10_000):
        taken.add(free.lowest(wide, is_free) or "")
    assert len(taken) == 10_000
    assert looks <= 20_000
