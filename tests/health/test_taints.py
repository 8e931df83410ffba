"""When the taint of the verification goes, and what of a Node's taints is touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from provisioner.api import Server
from provisioner.api.nodes.contract import HOLD_REQUESTED, HOLD_TAINT, VERIFICATION_TAINT
from provisioner.api.servers.server import Verification
from provisioner.health.decide import decide
from provisioner.health.node_writer import plan_taints
from provisioner.rules.nodes import NodeView
from tests.health.objects import (
    NOON,
    OTHER_BOOT,
    after,
    booted,
    carried_on,
    good_facts,
    node,
    node_condition,
    situation,
)

FOREIGN = (
    {"key": "example.com/x", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z", "value": "1"},
    {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
    {"key": "provisioner.dev/maintenance", "effect": "NoSchedule", "value": "r01-u01-3"},
)
OURS = {"key": VERIFICATION_TAINT, "effect": "NoExecute"}
HOLD = {"key": HOLD_TAINT, "effect": "NoSchedule"}


def verified(**parts: Any) -> Server:
    before = situation(**parts)
    return carried_on(before, decide(before, after(1))).server


def changed(server: Server, **status: Any) -> Server:
    return replace(server, status=replace(server.status, **status))


def test_a_verified_boot_loses_the_taint_and_foreign_ones_stay_byte_for_byte() -> None:
    plan = plan_taints(verified(), node(taints=(FOREIGN[0], OURS, *FOREIGN[1:])))
    assert plan is not None
    assert plan.taints == FOREIGN
    assert (plan.admitted, plan.held, plan.hold_ended) == (True, False, False)


def test_a_node_whose_taints_are_right_is_not_written() -> None:
    assert plan_taints(verified(), node(taints=FOREIGN)) is None


def other_order(server: Server) -> Server:
    assert server.status.order is not None
    return changed(server, order=replace(server.status.order, id="order-2"))


def other_boot_verified(server: Server) -> Server:
    assert isinstance(server.status.verification, Verification)
    return changed(server, verification=replace(server.status.verification, boot_id=OTHER_BOOT))


@pytest.mark.parametrize(
    ("server", "seen"),
    [
        (verified(node=node(good_facts(cpus=1))), node()),
        (verified(node=node("")), node()),
        (booted(), node()),
        (verified(), node(boot_id=OTHER_BOOT)),
        (verified(), node(order="order-2")),
        (verified(), node(order=None)),
        (other_order(verified()), node()),
        (other_order(verified()), node(order="order-2")),
        (other_boot_verified(verified()), node()),
        (changed(verified(), node_uid="another"), node()),
        (changed(verified(), verification=None), node()),
    ],
    ids=[
        "failed", "waits", "not looked at", "another boot runs", "prepared for another order", "not prepared",
        "another order was given", "and prepared", "another boot was verified", "another Node", "no record",
    ],
)  # fmt: skip
def test_whatever_does_not_fit_together_keeps_the_taint(server: Server, seen: NodeView) -> None:
    assert plan_taints(server, seen) is None


def test_a_released_boot_loses_the_taint_too() -> None:
    asked = node_condition("provisioner.dev/VerificationReleaseRequested", at=after(1))
    released = verified(node=node(good_facts(cpus=1), asked))
    assert plan_taints(released, node()) is not None


def test_a_hold_is_put_on_and_taken_off_and_nothing_else() -> None:
    held = node(None, node_condition(HOLD_REQUESTED, at=NOON), taints=FOREIGN)
    plan = plan_taints(verified(), held)
    assert plan is not None
    assert plan.taints == (*FOREIGN, HOLD)
    assert plan.held
    assert plan_taints(verified(), node(None, node_condition(HOLD_REQUESTED), taints=(*FOREIGN, HOLD))) is None
    for condition in ((), (node_condition(HOLD_REQUESTED, "False"),), (node_condition(HOLD_REQUESTED, "Unknown"),)):
        plan = plan_taints(verified(), node(None, *condition, taints=(HOLD, *FOREIGN)))
        assert plan is not None
        assert plan.taints == FOREIGN
        assert plan.hold_ended


def test_one_true_hold_among_duplicates_counts() -> None:
    several = node(None, node_condition(HOLD_REQUESTED), node_condition(HOLD_REQUESTED, "False"), taints=())
    assert plan_taints(verified(), several) is not None


def test_a_server_that_was_adopted_may_be_held_and_keeps_a_taint_that_is_not_ours_to_judge() -> None:
    adopted = changed(booted(), order=None, join=None)
    plan = plan_taints(adopted, node(None, node_condition(HOLD_REQUESTED), taints=(OURS,)))
    assert plan is not None
    assert plan.taints == (OURS, HOLD)
