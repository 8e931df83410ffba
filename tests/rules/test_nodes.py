"""A Node is read in one way by all, whatever foreign writers and the machine itself have left on it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from provisioner.api.nodes.contract import (
    BOOT_INTENT_ANNOTATION,
    BOOT_REPORT_ANNOTATION,
    HOLD_REQUESTED,
    MAINTENANCE_TAINT,
    NODE_FACTS_ANNOTATION,
)
from provisioner.rules.liveness import read_life
from provisioner.rules.nodes import NodeView, read_node, taint_value


def view(
    *conditions: dict[str, Any], annotations: dict[str, str] | None = None, boot_id: str = "", **spec: Any
) -> NodeView:
    return NodeView(
        {
            "metadata": {"name": "r01-u01", "annotations": annotations},
            "spec": spec,
            "status": {"nodeInfo": {"bootID": boot_id}, "conditions": list(conditions)},
        }
    )


def said(status: str, type_: str = "Ready", **fields: str) -> dict[str, Any]:
    return {"type": type_, "status": status, **fields}


def taint(value: str, effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": MAINTENANCE_TAINT, "value": value, "effect": effect}


def test_no_node_is_no_view() -> None:
    assert read_node(None) is None


@pytest.mark.parametrize(
    "duplicates", [("True", "False"), ("False", "True"), ("Unknown", "True", "False"), ("True", "True")]
)
def test_of_several_conditions_of_a_type_one_that_is_true_is_enough(
    duplicates: tuple[str, ...],
) -> None:
    node = view(*(said(status) for status in duplicates), *(said(status, HOLD_REQUESTED) for status in duplicates))
    assert (node.ready, node.held) == (True, True)
    found, life = node.condition("Ready"), read_life(node.body, None)
    assert found is not None
    assert found.is_true
    assert life is not None
    assert life.ready is True


def test_of_several_that_are_not_true_the_last_one_counts() -> None:
    found = view(said("Unknown", reason="NodeStatusUnknown"), said("False", reason="KubeletNotReady")).condition(
        "Ready"
    )
    assert found is not None
    assert (found.status, found.reason, found.time) == ("False", "KubeletNotReady", None)


def test_a_condition_that_nobody_wrote_is_none() -> None:
    assert view().condition("Ready") is None
    assert not view().ready


@pytest.mark.parametrize(
    ("node", "reported"),
    [
        (view(), False),
        (view(said("Unknown")), False),
        (view(said("Unknown"), said("False")), True),
        (view(said("True")), True),
        (view(boot_id="B1"), True),
    ],
)
def test_a_kubelet_has_reported_once_it_wrote_a_boot_or_whether_it_is_ready(node: NodeView, reported: bool) -> None:
    assert node.has_reported is reported


def test_a_boot_id_is_compared_in_lower_case() -> None:
    facts = {"format": 1, "bootID": "B1", "imageDigest": "sha256:" + "ab" * 32, "time": "2026-01-01T00:00:00Z"}
    facts |= {"product": "model", "cpus": 2, "memoryBytes": 1}
    node = view(boot_id="B1", annotations={NODE_FACTS_ANNOTATION: json.dumps(facts)})
    assert node.boot_id == "b1"
    assert node.facts is not None
    assert view(boot_id="b2", annotations=dict(node.annotations)).facts is None
    assert view(annotations=dict(node.annotations)).facts is None


def test_an_annotation_that_cannot_be_read_is_none_but_an_intent_is_seen_to_be_there() -> None:
    node = view(annotations={BOOT_INTENT_ANNOTATION: "[" * 5000, BOOT_REPORT_ANNOTATION: "{}"})
    assert (node.intent, node.report, node.has_intent) == (None, None, True)
    assert not view().has_intent


def test_a_taint_is_a_maintenances_by_its_name_and_its_effect() -> None:
    node = view(taints=[{"key": "example.com/other", "effect": "NoExecute"}, taint("r01-u01-1")])
    assert node.is_tainted("r01-u01-1", "NoSchedule")
    assert not node.is_tainted("r01-u01-1", "PreferNoSchedule")
    assert not node.is_tainted("r01-u01-2", "NoSchedule")
    assert not view().is_tainted("r01-u01-1", "NoSchedule")


def test_of_several_taints_of_maintenance_none_has_an_effect_of_ours() -> None:
    node = view(taints=[taint("r01-u01-1"), taint("by-hand", "NoExecute")])
    assert (node.taint, node.taint_effect) == ("r01-u01-1", None)


def test_a_name_that_is_too_long_for_a_taint_keeps_its_end() -> None:
    name = "rack-" + "x" * 57 + "-u01-12"
    assert taint_value(name) == name[-63:].lstrip("-.")
    assert view(taints=[taint(taint_value(name))]).is_tainted(name, "NoSchedule")
