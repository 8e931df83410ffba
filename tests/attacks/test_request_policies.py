"""Who may ask for what: the shipped roles and policies, in every form in which requests are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import Maintenance, Server
from provisioner.api.machinery.errors import Conflict, Refused
from provisioner.api.nodes.contract import (
    BOOT_INTENT_ANNOTATION,
    DRAIN_REQUESTED,
    HOLD_REQUESTED,
    POWER_CYCLE_REQUESTED,
    REBOOT_REQUESTED,
    REIMAGE_REQUESTED,
    VERIFICATION_RELEASE_REQUESTED,
)
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, PODS, of
from provisioner.join.nodes.node_object import SERVER_UID_ANNOTATION
from tests.api.objects import maintenance
from tests.people import BOOT, bind, condition, kubeconfig_of, until

API = "/api/v1/nodes"


@pytest.fixture
def node(cluster: Cluster, unique: str, operator: Cluster) -> Iterator[str]:
    """A Node that is Ready."""
    metadata = {"name": unique, "annotations": {SERVER_UID_ANNOTATION: "a-server"}}
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    cluster.strategic_patch(NODES, unique, condition("Ready", "KubeletReady"), subresource="status")
    yield unique
    cluster.delete(NODES, unique)


@pytest.fixture
def controller(account: Callable[[str], Cluster], operator_kubeconfig: Path) -> Cluster:
    """Somebody who has stolen the account of the maintenance controller."""
    return account("maintenance")


def by_strategic_merge(who: Cluster, node: str, type_: str, reason: str, message: str) -> None:
    who.strategic_patch(NODES, node, condition(type_, reason, message), subresource="status")


def by_json_patch(who: Cluster, node: str, type_: str, reason: str, message: str) -> None:
    added = condition(type_, reason, message)["status"]["conditions"][0]
    patch = [{"op": "add", "path": "/status/conditions/-", "value": added}]
    _send(who, node, patch, "application/json-patch+json")


def by_merge_patch(who: Cluster, node: str, type_: str, reason: str, message: str) -> None:
    """All conditions, the others as they are: so write tools that know nothing but JSON merge patch."""
    others = who.get(NODES, node)["status"]["conditions"]
    added = condition(type_, reason, message)["status"]["conditions"]
    who.patch(NODES, node, {"status": {"conditions": [*others, *added]}}, subresource="status")


def by_server_side_apply(who: Cluster, node: str, type_: str, reason: str, message: str) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, **condition(type_, reason, message)}
    who.apply(body, manager="some-tool", subresource="status")


def by_create(who: Cluster, node: str, type_: str, reason: str, message: str) -> None:
    """For who may create Nodes: a condition that a Node is born with."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, **condition(type_, reason, message)}
    who.create(NODES, body)


def _send(who: Cluster, node: str, patch: Any, content_type: str) -> None:
    who._transport.request(
        "PATCH", f"{API}/{node}/status", what="patch", body=json.loads(json.dumps(patch)), content_type=content_type
    )


FORMS = (by_strategic_merge, by_json_patch, by_merge_patch, by_server_side_apply)
Form = Callable[[Cluster, str, str, str, str], None]


def requested(cluster: Cluster, node: str) -> list[str]:
    conditions = cluster.get(NODES, node)["status"].get("conditions", [])
    return [c["type"] for c in conditions if c["type"].startswith("provisioner.dev/") and c["status"] == "True"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("type_", [REBOOT_REQUESTED, REIMAGE_REQUESTED, POWER_CYCLE_REQUESTED, DRAIN_REQUESTED])
def test_now_is_for_those_who_may_disrupt(
    operator: Cluster, administrator: Cluster, cluster: Cluster, node: str, form: Form, type_: str
) -> None:
    with pytest.raises(Refused, match=f"alice may not ask for Now.*{type_}"):
        form(operator, node, type_, "Now", "I am in a hurry")
    assert requested(cluster, node) == []
    form(administrator, node, type_, "Now", "it burns")
    assert requested(cluster, node) == [type_]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("reason", "message"), [("WhenIdle", "new driver"), ("Deadline", "for Bob deadline=+2h")])
def test_an_operator_asks_with_patience(
    operator: Cluster, cluster: Cluster, node: str, form: Form, reason: str, message: str
) -> None:
    form(operator, node, REIMAGE_REQUESTED, reason, message)
    assert requested(cluster, node) == [REIMAGE_REQUESTED]


def test_a_patient_request_does_not_become_an_urgent_one(operator: Cluster, cluster: Cluster, node: str) -> None:
    by_strategic_merge(operator, node, REBOOT_REQUESTED, "WhenIdle", "new driver")
    with pytest.raises(Refused, match="alice may not ask for Now"):
        by_strategic_merge(operator, node, REBOOT_REQUESTED, "Now", "new driver")
    with pytest.raises(Refused, match="alice may not ask for Now"):
        by_json_patch(operator, node, REBOOT_REQUESTED, "Now", "a duplicate of the type")


def test_what_somebody_else_asked_for_now_does_not_keep_others_from_writing_their_own(
    operator: Cluster, administrator: Cluster, cluster: Cluster, node: str
) -> None:
    by_strategic_merge(administrator, node, POWER_CYCLE_REQUESTED, "Now", "it burns")
    by_merge_patch(operator, node, HOLD_REQUESTED, "Investigating", "I look at it")
    cluster.strategic_patch(NODES, node, condition("Ready", "KubeletReady", "still"), subresource="status")
    assert sorted(requested(cluster, node)) == [HOLD_REQUESTED, POWER_CYCLE_REQUESTED]


@pytest.mark.parametrize("reason", ["Soon", "now", "Whenidle"])
def test_a_reason_that_says_nothing_is_refused_in_words(operator: Cluster, node: str, reason: str) -> None:
    with pytest.raises(Refused, match=f"has reason '{reason}', expected WhenIdle, Deadline or Now"):
        by_strategic_merge(operator, node, REBOOT_REQUESTED, reason, "please")


@pytest.mark.parametrize("message", ["tonight", "deadline=tonight", "deadline=2h", "nodeadline=+2h", "deadline=+2 h"])
def test_a_deadline_that_is_not_told_is_refused_in_words(operator: Cluster, node: str, message: str) -> None:
    with pytest.raises(Refused, match="names no deadline: write deadline="):
        by_strategic_merge(operator, node, REBOOT_REQUESTED, "Deadline", message)


@pytest.mark.parametrize("moment", ["+30m", "+2h,", "+1d", "2027-01-31T18:00:00Z", "2027-01-31T18:00:00.5+01:00"])
def test_a_deadline_is_told_by_a_time_or_a_span(operator: Cluster, cluster: Cluster, node: str, moment: str) -> None:
    by_strategic_merge(operator, node, REBOOT_REQUESTED, "Deadline", f"for Bob: deadline={moment} at the latest")
    assert requested(cluster, node) == [REBOOT_REQUESTED]


def test_an_operator_withdraws_and_holds(operator: Cluster, cluster: Cluster, node: str) -> None:
    by_strategic_merge(operator, node, REBOOT_REQUESTED, "WhenIdle", "new driver")
    patch = condition(REBOOT_REQUESTED, "Withdrawn", status="False")
    operator.strategic_patch(NODES, node, patch, subresource="status")
    by_strategic_merge(operator, node, HOLD_REQUESTED, "Investigating", "its fan")
    assert requested(cluster, node) == [HOLD_REQUESTED]


def test_the_right_to_ask_is_not_the_right_to_say_how_a_node_is(operator: Cluster, cluster: Cluster, node: str) -> None:
    for forged in (
        condition("Ready", "Broken", status="False"),
        condition("MaintenanceInProgress", "Forged"),
        {"status": {"capacity": {"cpu": "1000"}}},
        {"status": {"nodeInfo": {"bootID": "forged"}}},
        {"status": {"declaredFeatures": ["Forged"]}},  # which is younger than the policy
        {"metadata": {"labels": {"provisioner.dev/pool": "mine"}}},
        {"metadata": {"annotations": {"provisioner.dev/server-uid": "mine"}}},
        {"metadata": {"finalizers": ["example.com/mine"]}},
    ):
        with pytest.raises(Refused, match=r"nothing else of its status|may not write provisioner\.dev/server-uid"):
            operator.strategic_patch(NODES, node, forged, subresource="status")
    with pytest.raises(Refused, match=r"nothing else of its status|may not write provisioner\.dev/server-uid"):
        operator.patch(NODES, node, condition(REBOOT_REQUESTED, "WhenIdle"), subresource="status")
    assert [c["type"] for c in cluster.get(NODES, node)["status"]["conditions"]] == ["Ready"]
    with pytest.raises(Refused, match="cannot patch resource"):
        operator.patch(NODES, node, {"spec": {"unschedulable": True}})


def test_who_may_write_nodes_is_not_held_to_requests(cluster: Cluster, node: str) -> None:
    cluster.strategic_patch(NODES, node, condition("Ready", "Broken", status="False"), subresource="status")
    assert cluster.get(NODES, node)["status"]["conditions"][0]["status"] == "False"


@pytest.fixture
def kubelet(control_plane: ControlPlane, operator_kubeconfig: Path, node: str, tmp_path: Path) -> Cluster:
    """Root on the machine, with its kubelet's certificate."""
    return Cluster.connect(kubeconfig_of(control_plane, tmp_path, f"system:node:{node}", group="system:nodes"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("type_", [REBOOT_REQUESTED, DRAIN_REQUESTED, HOLD_REQUESTED, VERIFICATION_RELEASE_REQUESTED])
def test_a_node_asks_for_nothing_in_its_own_name(
    kubelet: Cluster, cluster: Cluster, node: str, form: Form, type_: str
) -> None:
    with pytest.raises(Refused, match="is a node: a node neither asks"):
        form(kubelet, node, type_, "WhenIdle", "let me in")
    assert requested(cluster, node) == []


def test_a_node_is_not_born_with_a_release_of_its_checks(kubelet: Cluster, cluster: Cluster, node: str) -> None:
    cluster.delete(NODES, node)
    with pytest.raises(Refused, match="is a node: a node neither asks"):
        by_create(kubelet, node, VERIFICATION_RELEASE_REQUESTED, "LetIn", "all is well")
    by_create(kubelet, node, "Ready", "KubeletReady", "born")


def test_a_node_does_not_withdraw_a_hold_and_goes_on_reporting_under_it(
    kubelet: Cluster, operator: Cluster, cluster: Cluster, node: str
) -> None:
    by_strategic_merge(operator, node, HOLD_REQUESTED, "Investigating", "its fan")
    patch = condition(HOLD_REQUESTED, "Withdrawn", status="False")
    with pytest.raises(Refused, match="nor withdraws"):
        kubelet.strategic_patch(NODES, node, patch, subresource="status")
    with pytest.raises(Refused, match="nor withdraws"):
        kubelet.patch(NODES, node, condition("Ready", "KubeletReady"), subresource="status")
    kubelet.strategic_patch(NODES, node, condition("Ready", "KubeletReady", "beat"), subresource="status")
    assert requested(cluster, node) == [HOLD_REQUESTED]


def test_a_machine_is_booted_by_nobody_who_may_not_disrupt(
    kubelet: Cluster, operator: Cluster, administrator: Cluster, controller: Cluster, cluster: Cluster, node: str
) -> None:
    intent = {"metadata": {"annotations": {BOOT_INTENT_ANNOTATION: '{"action": "Kexec"}'}}}
    for who in (kubelet, operator):
        for subresource in ("status", None):
            with pytest.raises(Refused, match=r"boot-intent|cannot patch resource|nothing else of its status"):
                who.strategic_patch(NODES, node, intent, subresource=subresource)
    controller.patch(NODES, node, intent)
    withdrawn = {"metadata": {"annotations": {BOOT_INTENT_ANNOTATION: None}}}
    with pytest.raises(Refused, match=r"may not write provisioner\.dev/boot-intent"):
        kubelet.strategic_patch(NODES, node, withdrawn)
    report = {"metadata": {"annotations": {"provisioner.dev/boot-report": "{}", "provisioner.dev/node-facts": "{}"}}}
    kubelet.strategic_patch(NODES, node, report)
    controller.patch(NODES, node, withdrawn)
    assert BOOT_INTENT_ANNOTATION not in cluster.get(NODES, node)["metadata"]["annotations"]


def test_a_tool_that_writes_conditions_of_its_own_boots_no_machine(
    control_plane: ControlPlane, cluster: Cluster, node: str, tmp_path: Path
) -> None:
    """Such as a node problem detector: it may write Nodes' status, and is held to no list of conditions."""
    rbac = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}]
    body = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "detector"}, "rules": rules}
    cluster.apply(body, manager="tests")
    bind(cluster, "detector", "detector")
    detector = Cluster.connect(kubeconfig_of(control_plane, tmp_path, "detector"))
    by_strategic_merge(detector, node, "KernelDeadlock", "NoDeadlock", "all is well")
    by_strategic_merge(detector, node, REBOOT_REQUESTED, "WhenIdle", "its kernel complains")
    intent = {"metadata": {"annotations": {BOOT_INTENT_ANNOTATION: "{}"}}}
    with pytest.raises(Refused, match=r"detector may not write provisioner\.dev/boot-intent"):
        detector.strategic_patch(NODES, node, intent, subresource="status")
    with pytest.raises(Refused, match="detector may not ask for Now"):
        by_strategic_merge(detector, node, REBOOT_REQUESTED, "Now", "its kernel complains")
    assert requested(cluster, node) == [REBOOT_REQUESTED]


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "action": "Reboot", **more}


def file_maintenance(who: Cluster, name: str, *requestors: dict[str, Any], manager: str = "tests") -> None:
    who.apply(maintenance(name, serverRef=name, requestors=list(requestors)), manager=manager)


def filed(cluster: Cluster, name: str) -> list[str]:
    return sorted(r.name for r in cluster.read(Maintenance, name).spec.requestors)


def test_a_maintenance_under_now_is_for_those_who_may_disrupt(
    operator: Cluster, administrator: Cluster, cluster: Cluster, unique: str
) -> None:
    with pytest.raises(Refused, match="alice may not ask for policy Now"):
        file_maintenance(operator, unique, entry("user-alice", user="alice", policy="Now"))
    with pytest.raises(Refused, match="alice may not ask for policy Now"):
        operator.create(
            of(Maintenance),
            maintenance(unique, serverRef=unique, requestors=[entry("user-alice", user="alice", policy="Now")]),
        )
    file_maintenance(operator, unique, entry("user-alice", user="alice"))
    patch = {"spec": {"requestors": [entry("user-alice", user="alice", policy="Now")]}}
    with pytest.raises(Refused, match="alice may not ask for policy Now"):
        operator.patch(of(Maintenance), unique, patch)
    file_maintenance(administrator, unique, entry("user-ada", user="ada", policy="Now"), manager="ada")
    assert filed(cluster, unique) == ["user-ada", "user-alice"]


@pytest.mark.parametrize(
    "forged",
    [entry("user-alice"), entry("user-bob", user="bob"), entry("condition-reboot")],
)
def test_nobody_asks_in_another_name(operator: Cluster, unique: str, forged: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="is not alice's to write"):
        file_maintenance(operator, unique, forged)


def test_nobody_asks_as_a_rollout(operator: Cluster, administrator: Cluster, cluster: Cluster, unique: str) -> None:
    for person, name in ((operator, "alice"), (administrator, "ada")):
        with pytest.raises(Refused, match="is that of rollouts alone"):
            file_maintenance(person, unique, entry("rollout", user=name))
    file_maintenance(operator, unique, entry("user-alice", user="alice"))
    assert filed(cluster, unique) == ["user-alice"]


def test_nobody_takes_over_or_withdraws_what_another_asked_for(
    operator: Cluster, administrator: Cluster, cluster: Cluster, unique: str
) -> None:
    file_maintenance(administrator, unique, entry("user-ada", user="ada"), manager="ada")
    file_maintenance(operator, unique, entry("user-alice", user="alice"), manager="alice")
    with pytest.raises(Refused, match=r"user-ada of Maintenance .* is not alice's to withdraw: ask ada"):
        operator.patch(of(Maintenance), unique, {"spec": {"requestors": [entry("user-alice", user="alice")]}})
    with pytest.raises(Refused, match=r"user-ada of Maintenance .* is not alice's to write"):
        file_maintenance(operator, unique, entry("user-ada", user="alice"), manager="alice")
    file_maintenance(operator, unique, manager="alice")
    assert filed(cluster, unique) == ["user-ada"]
    file_maintenance(administrator, unique, entry("user-ada", user="ada", message="all"), manager="ada")
    file_maintenance(operator, unique, entry("user-alice", user="alice"), manager="alice")
    administrator.patch(of(Maintenance), unique, {"spec": {"requestors": []}})
    assert filed(cluster, unique) == []


def test_the_controller_carries_conditions_over_without_a_user(
    controller: Cluster, cluster: Cluster, unique: str
) -> None:
    file_maintenance(controller, unique, entry("condition-reboot", policy="Now"), manager="intake")
    assert filed(cluster, unique) == ["condition-reboot"]
    file_maintenance(controller, unique, manager="intake")
    assert filed(cluster, unique) == []


def test_the_finalizer_that_guarantees_the_release_is_not_an_operators_to_take_off(
    operator: Cluster, controller: Cluster, cluster: Cluster, unique: str
) -> None:
    file_maintenance(operator, unique, entry("user-alice", user="alice"))
    controller.patch(of(Maintenance), unique, {"metadata": {"finalizers": ["provisioner.dev/release"]}})
    with pytest.raises(Refused, match="is taken off by the controller once the node was released"):
        operator.patch(of(Maintenance), unique, {"metadata": {"finalizers": None}})
    with pytest.raises(Refused, match="cannot delete resource"):
        operator.delete(of(Maintenance), unique)
    controller.patch(of(Maintenance), unique, {"metadata": {"finalizers": None}})


def test_an_operator_writes_no_record(operator: Cluster, cluster: Cluster, unique: str) -> None:
    file_maintenance(operator, unique, entry("user-alice", user="alice"))
    with pytest.raises(Refused, match="cannot patch resource"):
        operator.apply_status(Maintenance, unique, {"phase": "Completed"}, manager="thief")
    with pytest.raises(Refused, match="cannot patch resource"):
        operator.apply_status(Server, unique, {"lifecycle": "InProduction"}, manager="thief")


def put_maintenance_taint(who: Cluster, node: str, effect: str) -> None:
    """Beside the taints of Kubernetes' node controller, which puts some on and takes some off meanwhile."""
    key = "provisioner.dev/maintenance"

    def is_written() -> bool:
        body = who.get(NODES, node)
        others = [each for each in body["spec"].get("taints", []) if each["key"] != key]
        version = {"resourceVersion": body["metadata"]["resourceVersion"]}
        taints = [*others, {"key": key, "effect": effect, "value": "m"}]
        try:
            who.patch(NODES, node, {"metadata": version, "spec": {"taints": taints}})
        except Conflict:
            return False
        return True

    until(is_written)


def test_a_stolen_maintenance_account_neither_cordons_nor_forges_conditions(
    controller: Cluster, cluster: Cluster, node: str
) -> None:
    for forged in (
        {"spec": {"unschedulable": True}},
        {"spec": {"providerID": "mine"}},
        {"metadata": {"annotations": {"example.com/other": "mine"}}},
    ):
        with pytest.raises(Refused, match=r"neither cordons nor uncordons|which is not its own"):
            controller.patch(NODES, node, forged)
    with pytest.raises(Refused, match=r"writes no conditions of Node .* but its own"):
        controller.strategic_patch(NODES, node, condition("Ready", "Forged", status="False"), subresource="status")
    for own in (condition("MaintenancePlanned", "Requested"), condition(REBOOT_REQUESTED, "Completed", status="False")):
        controller.strategic_patch(NODES, node, own, subresource="status")
    for effect in ("PreferNoSchedule", "NoSchedule"):
        put_maintenance_taint(controller, node, effect)
    with pytest.raises(Refused, match="may not put on or take off taint"):
        put_maintenance_taint(controller, node, "NoExecute")
    controller.patch(NODES, node, {"metadata": {"annotations": {"provisioner.dev/boot-intent": "{}"}}})
    cluster.patch(NODES, node, {"spec": {"unschedulable": True}})
    with pytest.raises(Refused, match="neither cordons nor uncordons"):
        controller.patch(NODES, node, {"spec": {"unschedulable": None}})


def test_a_stolen_maintenance_account_changes_no_pod(controller: Cluster, cluster: Cluster, unique: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": unique, "namespace": "default", "annotations": {"example.com/there": "x"}},
        "spec": {"containers": [{"name": "main", "image": "example.com/a"}], "nodeName": unique},
    }
    until(lambda: _is_there(cluster, "serviceaccounts"))
    cluster.create(PODS, body)
    warned = {"metadata": {"annotations": {"provisioner.dev/maintenance-deadline": "2027-01-01T00:00:00Z"}}}
    controller.patch(PODS, unique, warned, namespace="default")
    for forged in (
        {"spec": {"containers": [{"name": "main", "image": "example.com/evil"}]}},
        {"metadata": {"labels": {"app": "mine"}}},
        {"metadata": {"annotations": {"example.com/other": "mine"}}},
        {"metadata": {"annotations": {"example.com/there": None}}},
        {"metadata": {"annotations": {"provisioner.dev/other": "mine"}}},
        {"metadata": {"annotations": {"provisioner.dev/maintenance-deadline": "long" * 1000}}},
        {"metadata": {"finalizers": ["example.com/mine"]}},
    ):
        with pytest.raises(Refused, match="changes nothing of a pod but the annotation"):
            controller.strategic_patch(PODS, unique, forged, namespace="default")
    for act in (
        lambda: controller.delete(PODS, unique, namespace="default"),
        lambda: controller.create(PODS, body | {"metadata": {"name": f"{unique}-2", "namespace": "default"}}),
    ):
        with pytest.raises(Refused, match=r"cannot (delete|create) resource"):
            act()
    cluster.delete(PODS, unique, namespace="default")


def _is_there(cluster: Cluster, plural: str) -> bool:
    from provisioner.cluster.resources import ResourceType

    accounts = ResourceType("", "v1", "ServiceAccount", plural, namespaced=True)
    return any(a["metadata"]["name"] == "default" for a in cluster.list(accounts, namespace="default").items)


def test_a_stolen_boot_account_verifies_nothing(
    control_plane: ControlPlane, operator: Cluster, cluster: Cluster, unique: str, tmp_path: Path
) -> None:
    boot = Cluster.connect(kubeconfig_of(control_plane, tmp_path, BOOT, group="system:serviceaccounts"))
    spec = {"bootMACAddress": f"52:54:00:0c:{unique[1:3]}:{unique[3:5]}", "rackRef": "r99"}
    cluster.create(
        of(Server),
        {"apiVersion": "provisioner.dev/v1alpha1", "kind": "Server", "metadata": {"name": unique}, "spec": spec},
    )
    boot.apply_status(Server, unique, {"progress": {"stage": "Stage1"}}, manager="provisioner-boot")
    verified = {
        "type": "Verified",
        "status": "True",
        "reason": "Forged",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    checks = {"bootID": "b", "attempt": 1, "startedTime": "2026-01-01T00:00:00Z"}
    for forged in ({"lifecycle": "InProduction"}, {"verification": checks}, {"conditions": [verified]}):
        with pytest.raises(Refused, match="provisioner-boot may not write"):
            boot.apply_status(Server, unique, forged, manager="thief")
    with pytest.raises(Refused, match=r"cannot (patch|create) resource"):
        file_maintenance(boot, unique, entry("user-boot"))
