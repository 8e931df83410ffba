"""P_Keys: one for a VPC, never two, and none is given again while a port may have it."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api import InfiniBandNetwork
from provisioner.api.network.network_claim import pkey_claim
from provisioner.api.network.network_pool import PKeyRange
from provisioner.network.infiniband.pkeys import (
    choose_pkey,
    count_pkeys,
    decide_release,
    held_pkeys,
    holder_of,
    pkey_of,
)
from tests.network.infiniband.site import claim, guid, network, partition, vpc

BLUE, RED = vpc("blue"), vpc("red")
RELEASED, BEFORE, AFTER = "2026-01-02T12:00:00Z", "2026-01-02T11:59:59Z", "2026-01-02T12:00:30Z"


def acknowledged(
    *, read: str = AFTER, generation: int = 2, pkeys: tuple[int, ...] = (), **more: Any
) -> InfiniBandNetwork:
    status = {"observedGeneration": generation, "readTime": read, "pkeys": list(pkeys)}
    return network(generation=2, status=status, **more)


def test_the_lowest_free_one_of_the_open_ranges_is_chosen() -> None:
    ranges = (
        PKeyRange(first=1, last=9, closed=True),
        PKeyRange(first=0x101, last=0x102),
        PKeyRange(first=0x200, last=0x201),
    )
    assert choose_pkey(ranges, ()) == 0x101
    assert choose_pkey(ranges, {0x101, 0x102}) == 0x200
    assert choose_pkey(ranges, {0x101, 0x102, 0x200, 0x201}) is None
    assert choose_pkey((), ()) is None


def test_a_claim_is_of_the_value_after_which_it_is_named() -> None:
    assert (pkey_claim(0x101), pkey_of(claim(0x101, BLUE))) == ("pkey-0101", 0x101)
    assert pkey_of(claim(0x7FFF, BLUE)) is None


def test_of_two_claims_that_a_crash_left_the_lower_one_counts_and_the_other_is_released() -> None:
    first, second = claim(0x101, BLUE), claim(0x102, BLUE)
    held = held_pkeys([second, first])
    assert held == {holder_of(BLUE): 0x101}
    assert decide_release(first, BLUE, [], held).is_wanted
    assert not decide_release(second, BLUE, [], held).is_wanted


@pytest.mark.parametrize(
    "now", [None, vpc("blue", uid="another"), vpc("blue", partition=False), vpc("blue", deletionTimestamp=RELEASED)]
)
def test_a_claim_whose_holder_is_gone_or_wants_none_is_released(now: Any) -> None:
    held = claim(0x101, BLUE)
    assert not decide_release(held, now, [], held_pkeys([held])).is_wanted
    assert decide_release(held, BLUE, [], held_pkeys([held])).is_wanted


def test_a_released_one_stays_so_though_its_vpc_wants_one_again() -> None:
    released = claim(0x101, BLUE, released=RELEASED)
    assert not decide_release(released, BLUE, [], held_pkeys([released])).is_wanted


@pytest.mark.parametrize(
    ("networks", "waits_for"),
    [
        ([], ()),
        ([acknowledged()], ()),
        ([acknowledged(), acknowledged(name="rail-1", generation=1)], ("rail-1",)),
        ([acknowledged(read=BEFORE)], ("default",)),
        ([acknowledged(pkeys=(0x101,))], ("default",)),
        ([acknowledged(pkeys=(0x102,))], ()),
        ([network(partition(0x101, guid(1)), status={"observedGeneration": 1, "readTime": AFTER})], ("default",)),
        ([network()], ("default",)),
    ],
)
def test_it_is_given_again_once_every_fabric_was_read_back_since_without_it(
    networks: list[InfiniBandNetwork], waits_for: tuple[str, ...]
) -> None:
    released = claim(0x101, BLUE, released=RELEASED)
    release = decide_release(released, None, networks, {})
    assert (release.waits_for, release.is_over) == (waits_for, not waits_for)


def test_what_is_released_is_neither_taken_nor_free() -> None:
    counts = count_pkeys(
        (PKeyRange(first=0x101, last=0x104),), [claim(0x101, BLUE), claim(0x102, RED, released=RELEASED)]
    )
    assert (counts.taken, counts.quarantined, counts.free) == (1, 1, 2)
