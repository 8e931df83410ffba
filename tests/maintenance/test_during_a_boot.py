"""Requests that come while the server boots: what that boot answers, and what takes one that begins after it. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api.machinery.meta import rfc3339, rfc3339_micro
from provisioner.api.nodes.maintenance import RELEASE_FINALIZER, Requestor
from provisioner.api.servers.server import BootOrder, PowerStatus, Verification
from provisioner.maintenance.decide import decide
from provisioner.maintenance.model.budget import Budget
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.steps import WriteStatus
from provisioner.maintenance.phases.ends import find_end
from provisioner.maintenance.phases.new_boot import earlier_boot, new_boot
from tests.boot import objects
from tests.maintenance.samples import NOON, maintenance, requestor
from tests.maintenance.situations import BOOT, DIGEST, NEW_BOOT, NODE, attempt, facts, later, node, server
from tests.maintenance.test_rebooting import trying

IMAGE = "gpu-node-abababababab"


def asks(action: Any, at: float, **more: Any) -> Requestor:
    return requestor("user-ada", action, requested_time=rfc3339(later(at)), **more)


def behind(*asked: Requestor, method: Any = "PowerCycle", image: str = IMAGE) -> MaintenanceFacts:
    """Another Maintenance's boot began at 100 s, was seen at 130 s, and was verified at 150 s."""
    ended = {"ended_time": rfc3339_micro(later(130)), "outcome": "Booted", "image_ref": image}
    boot = attempt(method, began=100, **ended)
    earlier = maintenance(1, phase="Completed", reboot=boot, finished_time=rfc3339_micro(later(150)))
    return facts(*asked, finished=(earlier,))


@pytest.mark.parametrize(
    ("asked", "is_done"),
    [
        ((asks("Reboot", 99),), True),
        ((asks("Reboot", 101),), False),
        ((asks("PowerCycle", 99, policy="Now"),), True),
        ((asks("PowerCycle", 101, policy="Now"),), False),
        ((asks("Reboot", 131),), False),
        ((asks("Reimage", 101),), True),
        ((asks("Reimage", 131, policy="Now"),), True),
        ((asks("Reimage", 151),), False),
        ((asks("Reimage", 101, image_ref="another"),), False),
        ((asks("Reimage", 101), replace(asks("Reboot", 99), name="user-bob")), True),
        ((asks("Reimage", 101), replace(asks("Reboot", 101), name="user-bob")), False),
        ((asks("Reboot", 100),), False),
    ],
    ids=lambda value: ", ".join(f"{r.action} {r.requested_time}" for r in value) if isinstance(value, tuple) else None,
)
def test_a_boot_answers_what_was_asked_before_it_began_and_images_until_it_is_verified(
    asked: tuple[Requestor, ...], is_done: bool
) -> None:
    end = find_end(behind(*asked))
    assert (end is not None and end[0] == "DoneBefore") is is_done


def test_a_power_cycle_is_answered_by_no_other_boot() -> None:
    assert find_end(behind(asks("PowerCycle", 99), method="Reset")) is None


def booting(
    *asked: Requestor, verified_at: float | None = None, rounds: int = 1, image: str = IMAGE, **changes: Any
) -> MaintenanceFacts:
    """The server's boot order was given at noon; `verified_at`: when its boot passed the last of `rounds` of checks."""
    order = BootOrder(id="o1", reason="FirstBoot", ordered_time=rfc3339_micro(NOON), attempt=1, image_ref=image)
    if verified_at is None:
        given = server(joined=None, order="o1", ready_time=None, conditions=())
        view = node(None)
    else:
        finished = rfc3339_micro(later(verified_at))
        checked = Verification(
            boot_id=BOOT, attempt=rounds, started_time=rfc3339(NOON), finished_time=finished, image_digest=DIGEST
        )
        given, view = server(verification=checked, ready_time=rfc3339_micro(later(verified_at - 5))), node()
    given = replace(given, status=replace(given.status, order=order))
    found = facts(*asked, server=given, node=view, image=objects.image(), **changes)
    metadata = replace(found.maintenance.metadata, finalizers=(RELEASE_FINALIZER,))
    room = Budget(allowed=1, taken=(), fresh=True)
    return replace(found, budget=room, maintenance=replace(found.maintenance, metadata=metadata))


@pytest.mark.parametrize("policy", ["WhenIdle", "Now"])
def test_an_image_that_the_first_boot_brings_is_waited_for_and_done_with_it(policy: Any) -> None:
    condition = objects.condition("Ready", "False", "Stage1", message="boots")
    found = booting(asks("Reimage", 10, policy=policy))
    assert found.server is not None
    found = replace(found, server=replace(found.server, status=replace(found.server.status, conditions=(condition,))))
    step = decide(found, later(11))
    assert isinstance(step, WriteStatus)
    assert (step.status.phase, "has passed its checks" in step.status.blockers[0].message) == ("Waiting", True)
    assert find_end(booting(asks("Reimage", 10, policy=policy), verified_at=60)) is not None


@pytest.mark.parametrize(("ready", "booted"), [("StageTimedOut", "StageTimedOut"), ("BMCUnreachable", "StageTimedOut")])
def test_an_image_that_a_boot_brings_too_late_is_not_waited_for_now(ready: str, booted: str) -> None:
    told = [
        objects.condition(t, "False", reason, message="hangs") for t, reason in (("Ready", ready), ("Booted", booted))
    ]
    found = booting(asks("Reimage", 10, policy="Now"))
    assert found.server is not None
    found = replace(found, server=replace(found.server, status=replace(found.server.status, conditions=tuple(told))))
    step = decide(found, later(11))
    assert isinstance(step, WriteStatus)
    assert step.status.phase == "Claiming"


def test_an_image_that_was_verified_before_is_booted_anew() -> None:
    assert find_end(booting(asks("Reimage", 61), verified_at=60)) is None


def test_a_repeated_round_of_checks_is_no_proof_that_the_boot_came_after_the_request() -> None:
    assert find_end(booting(asks("Reimage", 10), verified_at=60, rounds=2)) is None


@pytest.mark.parametrize("action", ["Reboot", "PowerCycle"])
def test_whoever_asks_for_more_than_an_image_during_the_first_boot_gets_another_boot(action: Any) -> None:
    assert find_end(booting(asks(action, 10, policy="Now"), verified_at=60)) is None
    step = decide(booting(asks(action, 10, policy="Now")), later(11))
    assert isinstance(step, WriteStatus)
    assert step.status.phase == "Claiming"


def test_the_boot_that_was_under_way_is_not_taken_for_the_one_that_follows() -> None:
    found = trying("PowerCycle", server=server(order="o1", joined=NEW_BOOT), node=node(NEW_BOOT, taint=f"{NODE}-1"))
    assert (new_boot(found), earlier_boot(found)) == (None, NEW_BOOT)
    joined = server(order="o2", request="try-1", joined=NEW_BOOT)
    assert (new_boot(replace(found, server=joined)), earlier_boot(replace(found, server=joined))) == (NEW_BOOT, None)


def test_a_join_is_no_boot_by_the_bmc_before_the_bmc_says_so() -> None:
    """Whoever has a boot host can say that the boot has joined."""
    joined = server(order="o2", request="try-1", joined=NEW_BOOT)
    found = trying("PowerCycle", server=joined, node=node(BOOT, taint=f"{NODE}-1"))
    assert new_boot(found) is None
    accepted = replace(joined, status=replace(joined.status, power=PowerStatus(order_id="o2", state="On")))
    assert new_boot(replace(found, server=accepted)) == NEW_BOOT


def test_a_join_is_no_boot_by_an_agent_while_its_node_runs_on() -> None:
    joined = server(order="o2", request="try-1", joined=NEW_BOOT)
    taint = f"{NODE}-1"
    assert new_boot(trying("Kexec", server=joined, node=node(BOOT, taint=taint))) is None
    for view in (node(BOOT, ready="Unknown", taint=taint), node(NEW_BOOT, taint=taint), None):
        assert new_boot(trying("Kexec", server=joined, node=view)) == NEW_BOOT
