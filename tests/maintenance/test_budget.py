"""How many servers of a pool may be out of use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api.machinery.codec import encode
from provisioner.api.nodes.maintenance import DISTURBING_PHASES, FINAL_PHASES, Maintenance
from provisioner.api.pools.pool_settings import MaintenanceSettings
from provisioner.maintenance.model.budget import allowed_unavailable, asked_before, count_budget, part_of
from tests.boot.objects import pool
from tests.maintenance.samples import maintenance
from tests.maintenance.situations import blocker


@pytest.mark.parametrize(
    ("text", "servers", "allowed"),
    [
        (None, 100, 10),
        (None, 3, 1),
        (None, 0, 1),
        (2, 100, 2),
        ("3", 100, 3),
        ("1%", 10, 1),
        ("10%", 11, 2),
        ("100%", 7, 7),
        ("50%", 3, 2),
        (0, 100, 0),
        ("0%", 100, 0),
    ],
)
def test_a_share_is_rounded_up_and_0_pauses(text: Any, servers: int, allowed: int) -> None:
    wanted = pool(maintenance=MaintenanceSettings(max_unavailable=text))
    assert allowed_unavailable(wanted, servers) == allowed


def taken(members: list[str], *maintenances: Maintenance, own: str = "a-1") -> tuple[str, ...]:
    disturbing = [body for m in maintenances if part_of(body := encode(m)) == "Disturbs"]
    return count_budget(pool(), members, disturbing, own=own, fresh=True).taken


def before(members: list[str], *everyone: Maintenance, own: Maintenance) -> tuple[str, ...]:
    budget = count_budget(pool(), members, [], own=own.name, fresh=True)
    waits = [body for m in everyone if part_of(body := encode(m)) == "Waits"]
    return asked_before(budget, members, waits, lambda name: [m for m in everyone if m.spec.server_ref == name], own)


@pytest.mark.parametrize("phase", [None, "Waiting", *DISTURBING_PHASES, *FINAL_PHASES])
def test_a_slot_is_held_from_the_claim_to_the_release_and_no_longer(phase: Any) -> None:
    other = maintenance(1, server="b", phase=phase)
    assert bool(taken(["a", "b"], other)) is (phase in DISTURBING_PHASES)


def test_other_pools_and_oneself_do_not_count() -> None:
    own, foreign = maintenance(1, server="a", phase="Claiming"), maintenance(1, server="z", phase="Rebooting")
    assert taken(["a", "b"], own, foreign) == ()


def waiting(name: str, created: float, *kinds: Any, **status: Any) -> Maintenance:
    given = {"phase": "Waiting", "blockers": tuple(blocker(kind, "x") for kind in kinds), **status}
    return maintenance(1, server=name, created=created, **given)


def test_those_that_wait_for_nothing_but_the_budget_come_in_the_order_in_which_they_asked() -> None:
    everyone = [
        waiting("own", 50, "Budget"),
        waiting("second", 20, "Maintenance"),
        waiting("first", 10, "Budget"),
        waiting("later", 60, "Budget"),
        waiting("busy", 5, "Budget", "Pod"),
        waiting("new", 5),
        waiting("elsewhere", 5, "Budget"),
        waiting("claimed", 5, "Budget", phase="Claiming"),
    ]
    members = ["own", "second", "first", "later", "busy", "new", "claimed"]
    assert before(members, *everyone, own=everyone[0]) == ("first-1", "second-1")


def test_of_thousands_that_asked_before_only_those_are_named_that_can_matter() -> None:
    crowd = [waiting(f"s{number}", number, "Budget") for number in range(2000)]
    own = waiting("own", 5000, "Budget")
    found = before([m.spec.server_ref for m in crowd], *crowd, own=own)
    assert found[:2] == ("s0-1", "s1-1")
    assert len(found) < 400


def test_one_that_waits_behind_another_of_its_server_has_no_turn() -> None:
    behind = replace(waiting("a", 20, "Maintenance"), metadata=replace(waiting("a", 20).metadata, name="a-2"))
    own = waiting("own", 50, "Budget")
    assert before(["a", "own"], waiting("a", 10, "Pod"), behind, own, own=own) == ()
