"""Which Image a server shall boot, as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api import NodePool
from provisioner.api.machinery.codec import encode
from provisioner.api.pools.node_pool import NodePoolStatus
from provisioner.api.pools.rollout_status import ReleasedImage
from provisioner.api.servers.server import BootOrder, ServerStatus
from provisioner.api.servers.server_status import UpgradeFailure
from provisioner.rules.assigned_image import (
    boots_of_pool,
    current_image,
    images_of_pool,
    joining_image_name,
    next_image,
    ordered_image,
)
from tests.boot.objects import at, attempt, condition, image, maintenance, pool, server

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
    assert next_image(server(status=status), POOL, holding).name == boots, sentence


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
    assert current_image(known, POOL).name == boots, sentence


@pytest.mark.parametrize(
    ("sentence", "progress", "given", "boots"),
    [
        ("once all may follow, the released one", ("True", "Rest"), {}, "pool"),
        ("also when the rollout is complete", ("False", "Complete"), {}, "pool"),
        ("before that, the assigned one", ("True", "CanarySoak"), {}, "assigned"),
        ("while it is paused, too", ("False", "Paused"), {}, "assigned"),
        ("of a server that is excluded, too", ("True", "Rest"), {"upgrades": "Excluded"}, "assigned"),
        ("of another architecture, too", ("True", "Rest"), {"architecture": "arm64"}, "assigned"),
        ("of one that is to be in another pool, too", ("True", "Rest"), {"node_pool_ref": "other"}, "assigned"),
        (
            "of one that failed with it, too",
            ("True", "Rest"),
            {"status": replace(ASSIGNED, upgrade_failure=UpgradeFailure(image_ref="pool", time=at(0), message=""))},
            "assigned",
        ),
    ],
)
def test_a_reboot_that_is_ordered_and_names_no_image_boots(
    sentence: str, progress: tuple[Any, str], given: dict[str, Any], boots: str
) -> None:
    known = server(**{"status": ASSIGNED, **given})
    assert ordered_image(known, following(*progress), image("pool")).name == boots, sentence


@pytest.mark.parametrize(
    ("sentence", "fields", "joins"),
    [
        ("the ordered one", {"order": ORDER}, "ordered"),
        ("also when its boot has settled", {"order": ORDER, "ready_time": at(40)}, "ordered"),
        ("the next one where the order names none", {"order": replace(ORDER, image_ref=None)}, "assigned"),
        ("or where there is no order", {}, "assigned"),
    ],
)
def test_a_boot_joins_with(sentence: str, fields: dict[str, Any], joins: str) -> None:
    known = server(status=ServerStatus(assigned_image_ref="assigned", **fields))
    assert joining_image_name(known, POOL) == joins, sentence


def test_what_the_pool_says_now_counts_only_once_its_rollout_has_seen_it() -> None:
    seen = following("True", "Rest")
    edited = replace(seen, metadata=replace(seen.metadata, generation=2))
    assert ordered_image(server(status=ASSIGNED), edited, image("pool")).name == "assigned"
    assert ordered_image(server(status=ASSIGNED), seen, None).name == "assigned", "nor without its Image"
    assert boots_of_pool(encode(seen)) != boots_of_pool(encode(following("False", "Paused"))), "who follows it is woken"


def following(status: Any, reason: str) -> NodePool:
    """The pool, in which the image has passed its stages; with that condition Progressing."""
    released = ReleasedImage(image_ref="pool", time=at(0))
    said = replace(condition("Progressing", status, reason), observed_generation=1)
    metadata = replace(POOL.metadata, generation=1)
    return replace(POOL, metadata=metadata, status=NodePoolStatus(released=released, conditions=(said,)))


def test_without_a_pool_nothing_says_what_boots() -> None:
    assert next_image(server(), None).name is None
    assert next_image(None, None).name is None
    assert current_image(server(), None).name is None


def test_what_was_never_in_use_boots_what_has_passed_the_canary_and_not_what_is_wanted() -> None:
    released = replace(POOL, status=NodePoolStatus(released=ReleasedImage(image_ref="released", time=at(0))))
    assert next_image(server(), released).name == "released"
    assert next_image(server(status=ASSIGNED), released).name == "assigned"
    assert images_of_pool(encode(released)) == {"pool", "released"}
    assert images_of_pool(None) == frozenset()
