"""How many servers of a pool may be out of use."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api.maintenance import DISTURBING_PHASES, FINAL_PHASES
from provisioner.api.pool_settings import MaintenanceSettings
from provisioner.maintenance.budget import allowed_unavailable, count_budget
from tests.boot.objects import pool
from tests.maintenance.samples import maintenance


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
    ],
)
def test_a_share_is_rounded_up_and_one_is_always_allowed(text: Any, servers: int, allowed: int) -> None:
    wanted = pool(maintenance=MaintenanceSettings(max_unavailable=text))
    assert allowed_unavailable(wanted, servers) == allowed


@pytest.mark.parametrize("phase", [None, "Waiting", *DISTURBING_PHASES, *FINAL_PHASES])
def test_a_slot_is_held_from_the_claim_to_the_release_and_no_longer(phase: Any) -> None:
    other = maintenance(1, server="b", phase=phase)
    budget = count_budget(pool(), ["a", "b"], [other], own="a-1", fresh=True)
    assert budget.has_room is (phase not in DISTURBING_PHASES)


def test_other_pools_and_oneself_do_not_count() -> None:
    own, foreign = maintenance(1, server="a", phase="Claiming"), maintenance(1, server="z", phase="Rebooting")
    assert count_budget(pool(), ["a", "b"], [own, foreign], own="a-1", fresh=True).taken == ()
