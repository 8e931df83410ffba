"""Addresses lent to unknown machines: the same after a restart, never one for two, and never more work than bounded."""

from __future__ import annotations

from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from provisioner.boot.dhcp.responder.discovery import LentAddresses

FIRST = int(IPv4Address("10.80.0.200"))
FOUR = range(FIRST, FIRST + 4)


def mac(n: int) -> bytes:
    return b"\x52\x54" + n.to_bytes(4, "big")


def fresh(*taken: int) -> LentAddresses:
    return LentAddresses(lambda address: int.from_bytes(address, "big") in taken)


def test_a_machine_is_offered_the_same_address_by_every_replica_and_after_a_restart() -> None:
    wide = range(FIRST, FIRST + 50)
    offers = {fresh().offer(mac(1), wide, 0.0) for _ in range(3)}
    assert len(offers) == 1
    assert len({fresh().offer(mac(n), wide, 0.0) for n in range(200)}) > 40


def test_as_many_machines_as_addresses_each_get_their_own() -> None:
    discovery = fresh()
    offers = [discovery.offer(mac(n), FOUR, 0.0) for n in range(4)]
    assert {int.from_bytes(offer or b"", "big") for offer in offers} == set(FOUR)
    assert discovery.offer(mac(9), FOUR, 0.0) is None


def test_an_offer_that_nobody_took_is_free_again_after_seconds() -> None:
    discovery = fresh()
    for n in range(4):
        discovery.offer(mac(n), FOUR, 0.0)
    assert discovery.offer(mac(9), FOUR, 14.0) is None
    assert discovery.offer(mac(9), FOUR, 16.0) is not None


def test_a_claimed_address_stays_for_the_lease() -> None:
    discovery = fresh()
    one = range(FIRST, FIRST + 1)
    offered = discovery.offer(mac(1), one, 0.0)
    assert offered is not None
    assert discovery.claim(mac(1), offered, 1.0)
    assert discovery.offer(mac(2), one, 100.0) is None
    assert not discovery.claim(mac(2), offered, 100.0)
    assert discovery.claim(mac(1), offered, 110.0)
    assert discovery.offer(mac(2), one, 200.0) is None
    assert discovery.offer(mac(2), one, 250.0) == offered


def test_after_a_restart_a_machine_keeps_what_it_says_it_has() -> None:
    assert fresh().claim(mac(1), FIRST.to_bytes(4, "big"), 0.0)


def test_a_declined_address_is_given_to_nobody_for_a_while_and_the_machine_gets_another() -> None:
    discovery = fresh()
    first = discovery.offer(mac(1), FOUR, 0.0)
    assert first is not None
    discovery.claim(mac(1), first, 0.0)
    discovery.decline(mac(1), first, 1.0)
    assert discovery.offer(mac(1), FOUR, 2.0) not in (first, None)
    assert not discovery.claim(mac(1), first, 2.0)
    assert discovery.claim(mac(2), first, 700.0)


def test_only_the_holder_can_decline_or_release_an_address() -> None:
    discovery = fresh()
    held = discovery.offer(mac(1), FOUR, 0.0)
    assert held is not None
    discovery.claim(mac(1), held, 0.0)
    discovery.decline(mac(2), held, 0.0)
    discovery.release(mac(2))
    assert not discovery.claim(mac(2), held, 1.0)
    discovery.release(mac(1))
    assert discovery.claim(mac(2), held, 1.0)


def test_a_machine_whose_lease_ended_can_neither_decline_nor_release_the_address_that_another_has_now() -> None:
    discovery = fresh()
    address = FIRST.to_bytes(4, "big")
    assert discovery.claim(mac(1), address, 0.0)
    assert discovery.claim(mac(2), address, 200.0)
    discovery.decline(mac(1), address, 201.0)
    assert discovery.claim(mac(2), address, 202.0)
    discovery.release(mac(1))
    assert not discovery.claim(mac(3), address, 203.0)


def test_an_address_that_is_taken_is_never_lent() -> None:
    discovery = fresh(FIRST, FIRST + 1)
    offers = {discovery.offer(mac(n), FOUR, 0.0) for n in range(5)}
    assert offers == {(FIRST + 2).to_bytes(4, "big"), (FIRST + 3).to_bytes(4, "big"), None}
    assert not discovery.claim(mac(1), FIRST.to_bytes(4, "big"), 0.0)


def test_a_flood_of_strangers_does_bounded_work() -> None:
    asked = 0

    def taken(address: bytes) -> bool:
        nonlocal asked
        asked += 1
        return True

    assert LentAddresses(taken).offer(mac(1), range(FIRST, FIRST + 60_000), 0.0) is None
    assert asked <= 64


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["offer", "claim", "decline", "release"]), st.integers(0, 6), st.integers(0, 3)),
    max_size=60,
)


@given(ACTIONS)
def test_no_address_is_ever_held_by_two(actions: list[tuple[str, int, int]]) -> None:
    discovery = fresh()
    claimed: dict[bytes, bytes] = {}
    for now, (action, who, where) in enumerate(actions):
        address = (FIRST + where).to_bytes(4, "big")
        if action == "offer":
            discovery.offer(mac(who), FOUR, now)
        elif action == "claim":
            if discovery.claim(mac(who), address, now):
                claimed = {a: m for a, m in claimed.items() if m != mac(who)}
                assert claimed.get(address, mac(who)) == mac(who)
                claimed[address] = mac(who)
        elif action == "decline":
            if claimed.get(address) == mac(who):
                del claimed[address]
            discovery.decline(mac(who), address, now)
        else:
            claimed = {a: m for a, m in claimed.items() if m != mac(who)}
            discovery.release(mac(who))
        assert len(discovery._held) <= 4
        assert {discovery._holders[at].mac for at in discovery._held.values()} == set(discovery._held)
