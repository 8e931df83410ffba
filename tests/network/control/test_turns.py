"""A tenant's turns: so many DPUs a second, and at once what is little."""

from __future__ import annotations

from provisioner.network.control.turns import AHEAD_SECONDS, MOST_REMEMBERED, SECONDS_A_DPU, TenantTurns


def test_what_is_little_never_waits_and_what_is_much_waits_for_what_it_was() -> None:
    now = 100.0
    turns = TenantTurns(lambda: now)
    for _ in range(10):
        assert turns.wait("blue") == 0
        turns.take("blue", 5)
        now += 1
    turns.take("blue", 1000)
    assert turns.wait("blue") == 1000 * SECONDS_A_DPU - AHEAD_SECONDS
    assert turns.wait("red") == 0
    now += 1000 * SECONDS_A_DPU
    assert turns.wait("blue") == 0


def test_the_administrators_never_wait() -> None:
    turns = TenantTurns(lambda: 1.0)
    turns.take("", 100_000)
    assert turns.wait("") == 0


def test_tenants_that_are_not_in_arrears_are_forgotten() -> None:
    now = 1.0
    turns = TenantTurns(lambda: now)
    for number in range(2 * MOST_REMEMBERED):
        turns.take(f"t{number}", 1)
        now += 1
    assert len(turns._paid) <= MOST_REMEMBERED
