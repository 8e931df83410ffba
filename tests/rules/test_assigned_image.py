"""Which Image a server shall boot, as tables."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.api.server import BootOrder, ServerStatus
from provisioner.rules.assigned_image import assign_image, current_image_name, next_image_name
from tests.boot.objects import at, attempt, maintenance, pool, server

ORDER = BootOrder(id="o1", reason="FirstBoot", ordered_time=at(0), attempt=1, image_ref="ordered")
ASSIGNED = ServerStatus(assigned_image_ref="assigned")
POOL = pool(image_ref="pool")


def under_way(phase: Any, image: str = "asked-for") -> Any:
    return maintenance(phase=phase, reboot=attempt(image_ref=image))


@pytest.mark.parametrize(
    ("sentence", "status", "holding", "boots"),
    [
        ("where none was assigned yet, the pool's", ServerStatus(), None, "pool"),
        ("the assigned one, whatever the pool names by now", ASSIGNED, None, "assigned"),
        ("a Maintenance under way boots its own", ASSIGNED, under_way("Rebooting"), "asked-for"),
        ("also while its boot is verified", ASSIGNED, under_way("Verifying"), "asked-for"),
        ("what it asked for does not outlive it", ASSIGNED, under_way("Failed"), "assigned"),
        ("one that has begun no reboot changes nothing", ASSIGNED, maintenance(phase="Draining"), "assigned"),
    ],
)
def test_the_next_order_boots(sentence: str, status: ServerStatus, holding: Any, boots: str) -> None:
    assert next_image_name(server(status=status), POOL, holding) == boots, sentence


@pytest.mark.parametrize(
    ("sentence", "fields", "boots"),
    [
        ("what was ordered", {"order": ORDER}, "ordered"),
        ("once that boot is over, what is assigned", {"order": ORDER, "ready_time": at(40)}, "assigned"),
        ("what was ordered anew", {"order": ORDER, "ready_time": at(-40)}, "ordered"),
        ("without an order, what is assigned", {}, "assigned"),
    ],
)
def test_a_machine_that_boots_now_gets(sentence: str, fields: dict[str, Any], boots: str) -> None:
    known = server(status=ServerStatus(assigned_image_ref="assigned", **fields))
    assert current_image_name(known, POOL) == boots, sentence


def test_without_a_pool_nothing_says_what_boots() -> None:
    assert next_image_name(server(), None) is None
    assert next_image_name(None, None) is None
    assert current_image_name(server(), None) is None


@pytest.mark.parametrize(
    ("sentence", "spec", "has_pool", "assigned"),
    [
        ("an accepted server follows its pool", {}, True, "pool"),
        ("a pool that is gone takes nothing away", {}, False, "assigned"),
        ("in no pool, none", {"node_pool_ref": None}, False, None),
        ("one that waits for acceptance has none", {"acceptance": "Pending"}, True, None),
        ("a rejected one loses it", {"acceptance": "Rejected"}, True, None),
    ],
)
def test_it_is_assigned(sentence: str, spec: dict[str, Any], has_pool: bool, assigned: str | None) -> None:
    known = server(status=ASSIGNED, **spec)
    assert assign_image(known, POOL if has_pool else None) == assigned, sentence
