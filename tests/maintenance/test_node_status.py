"""Conditions of a Node are set without losing anybody's."""

from __future__ import annotations

from typing import Any

from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES
from provisioner.maintenance.status.node_status import NodeCondition, conditions_patch, missing
from tests.maintenance.samples import NOON, at

ASKED = "provisioner.dev/RebootRequested"


def answer(type_: str = ASKED) -> NodeCondition:
    return NodeCondition(type=type_, status="False", reason="Completed", message="done", time=at(5))


def node(*conditions: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "n", "resourceVersion": "7"}, "status": {"conditions": list(conditions)}}


def test_one_of_a_type_is_patched_by_its_type() -> None:
    patch, strategic = conditions_patch(node({"type": ASKED, "status": "True"}), [answer()], NOON)
    assert strategic
    (written,) = patch["status"]["conditions"]
    assert (written["type"], written["status"], written["lastTransitionTime"]) == (ASKED, "False", at(5))


def test_all_duplicates_are_set_and_everybody_elses_kept_under_the_resource_version() -> None:
    foreign = {"type": "Ready", "status": "True", "message": "kubelet is posting"}
    body = node({"type": ASKED, "status": "True"}, foreign, {"type": ASKED, "status": "False", "reason": "old"})
    patch, strategic = conditions_patch(body, [answer()], NOON)
    assert not strategic
    assert patch["metadata"]["resourceVersion"] == "7"
    written = patch["status"]["conditions"]
    assert [(c["type"], c["status"]) for c in written] == [(ASKED, "False"), ("Ready", "True"), (ASKED, "False")]
    assert written[1] == foreign


def test_a_status_that_does_not_change_keeps_its_time() -> None:
    body = node({"type": ASKED, "status": "False", "lastTransitionTime": at(-60)})
    patch, _ = conditions_patch(body, [answer()], NOON)
    assert patch["status"]["conditions"][0]["lastTransitionTime"] == at(-60)


def test_what_is_false_may_be_unsaid() -> None:
    assert missing(node(), [answer()]) == ()
    assert missing(node({"type": ASKED, "status": "True"}), [answer()]) == (answer(),)


def test_on_a_real_api_server_foreign_conditions_survive(cluster: Cluster, unique: str) -> None:
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}})
    for type_, status in (("Ready", "True"), (ASKED, "True"), ("example.com/Mine", "True")):
        patch = {"status": {"conditions": [{"type": type_, "status": status}]}}
        cluster.strategic_patch(NODES, unique, patch, subresource="status")
    patch, strategic = conditions_patch(cluster.get(NODES, unique), [answer(), answer("Drained")], NOON)
    assert strategic
    cluster.strategic_patch(NODES, unique, patch, subresource="status")
    found = {c["type"]: c["status"] for c in cluster.get(NODES, unique)["status"]["conditions"]}
    assert found == {"Ready": "True", ASKED: "False", "example.com/Mine": "True", "Drained": "False"}
    cluster.delete(NODES, unique)
