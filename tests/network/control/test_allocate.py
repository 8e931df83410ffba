"""Which identifier and which address is taken next."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.api.network.network_pool import VNIRange
from provisioner.network.control.compile.allocate import (
    choose_address,
    choose_vni,
    count_free,
    gateway_of,
    judge_wish,
    subnets_of,
)

RANGES = (VNIRange(first=10, last=12), VNIRange(first=20, last=29, closed=True), VNIRange(first=40, last=40))


def none_is_taken(value: object) -> bool:
    return False


def test_identifiers_come_out_of_open_ranges_each_once_until_there_are_none() -> None:
    taken: set[int] = set()
    for number in range(4):
        vni = choose_vni(RANGES, f"uid-{number}", taken.__contains__)
        assert vni is not None
        assert vni not in taken
        taken.add(vni)
        assert count_free(RANGES, taken) == 3 - number
    assert taken == {10, 11, 12, 40}
    assert choose_vni(RANGES, "one more", taken.__contains__) is None
    assert choose_vni((), "none", none_is_taken) is None


def test_what_is_taken_of_a_closed_range_is_not_of_what_is_free() -> None:
    assert count_free(RANGES, [10, 20, 21, 999]) == 3


@given(st.text())
def test_one_who_asks_twice_asks_for_the_same(uid: str) -> None:
    assert choose_vni(RANGES, uid, none_is_taken) == choose_vni(RANGES, uid, none_is_taken)


def test_addresses_are_odd_and_never_of_the_first_pair() -> None:
    subnets = subnets_of(["10.1.0.0/29", "fd00::/64", "10.2.0.0/30"], 4)
    taken: set[object] = set()
    while (address := choose_address(subnets, str(len(taken)), taken.__contains__)) is not None:
        taken.add(address)
    assert sorted(map(str, taken)) == ["10.1.0.3", "10.1.0.5", "10.1.0.7", "10.2.0.3"]


@given(st.text())
def test_the_gateway_is_in_the_subnet_too(uid: str) -> None:
    for cidr in ("10.1.0.0/30", "10.0.0.0/8", "fd00:1::/64", "fd00:1::/126"):
        subnet = ip_network(cidr)
        address = choose_address([subnet], uid, none_is_taken)
        assert address is not None
        assert int(address) % 2 == 1
        assert gateway_of(address) in subnet
        assert gateway_of(address) != subnet.network_address


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        ("10.1.0.3", None),
        ("10.1.0.255", None),
        ("fd00::3", None),
        ("10.1.0.0", "AddressNotGiven"),
        ("10.1.0.1", "AddressNotGiven"),
        ("fd00::1", "AddressNotGiven"),
        ("10.1.0.4", "AddressIsGateway"),
        ("10.1.1.3", "AddressOutsideVPC"),
        ("fd01::3", "AddressOutsideVPC"),
    ],
)
def test_a_wish_is_judged(wish: str, reason: str | None) -> None:
    found = judge_wish("main", ["10.1.0.0/24", "fd00::/64"], wish)
    assert (found.reason if found else None) == reason
    assert found is None or str(ip_address(wish)) in found.message
