"""Ways round the policies on requests: times, many and long conditions, marks of the controller's, owners, numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api import Maintenance
from provisioner.api.machinery.errors import Refused
from provisioner.api.nodes.contract import (
    BOOT_REPORT_ANNOTATION,
    HOLD_REQUESTED,
    NODE_FACTS_ANNOTATION,
    POWER_CYCLE_REQUESTED,
    PREPARED_ORDER_ANNOTATION,
    REBOOT_REQUESTED,
    VERIFICATION_RELEASE_REQUESTED,
)
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, of
from provisioner.join.nodes.node_object import SERVER_UID_ANNOTATION
from tests.api.objects import maintenance
from tests.people import bind, kubeconfig_of

NOON = "2026-03-01T12:00:00Z"
LATER = "2026-03-01T13:00:00Z"


@pytest.fixture
def node(cluster: Cluster, unique: str, operator: Cluster) -> Iterator[str]:
    """A Node that is Ready."""
    cluster.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}})
    _set(cluster, unique, _condition("Ready", "KubeletReady"))
    yield unique
    cluster.delete(NODES, unique)


@pytest.fixture
def kubelet(control_plane: ControlPlane, node: str, tmp_path: Path) -> Cluster:
    """Root on the machine, with its kubelet's certificate."""
    return Cluster.connect(kubeconfig_of(control_plane, tmp_path, f"system:node:{node}", group="system:nodes"))


def _condition(type_: str, reason: str, message: str = "", status: str = "True", **more: Any) -> dict[str, Any]:
    return {"type": type_, "status": status, "reason": reason, "message": message, **more}


def _set(who: Cluster, node: str, *conditions: dict[str, Any]) -> None:
    who.strategic_patch(NODES, node, {"status": {"conditions": list(conditions)}}, subresource="status")


def _set_all(who: Cluster, node: str, conditions: list[dict[str, Any]]) -> None:
    who.patch(NODES, node, {"status": {"conditions": conditions}}, subresource="status")


def _annotate(who: Cluster, node: str, key: str, value: str | None, subresource: str | None = "status") -> None:
    who.patch(NODES, node, {"metadata": {"annotations": {key: value}}}, subresource=subresource)


@pytest.mark.parametrize(
    ("type_", "reason", "message"),
    [
        (REBOOT_REQUESTED, "Deadline", "new driver deadline=+2h"),
        (VERIFICATION_RELEASE_REQUESTED, "Release", "Ada answers for it"),
    ],
)
def test_a_node_does_not_move_the_time_from_which_a_request_counts(
    cluster: Cluster, node: str, kubelet: Cluster, type_: str, reason: str, message: str
) -> None:
    """A deadline of +2h would never come; a release of before the boot would count for it."""
    _set(cluster, node, _condition(type_, reason, message, lastTransitionTime=NOON))
    with pytest.raises(Refused, match="is a node: a node neither asks"):
        _set(kubelet, node, {"type": type_, "lastTransitionTime": LATER})
    _set(kubelet, node, _condition("Ready", "KubeletReady", lastHeartbeatTime=LATER))


def test_a_right_to_ask_does_not_renew_what_was_asked_for_now(
    operator: Cluster, administrator: Cluster, cluster: Cluster, node: str
) -> None:
    _set(administrator, node, _condition(POWER_CYCLE_REQUESTED, "Now", "it burns", lastTransitionTime=NOON))
    with pytest.raises(Refused, match="alice may not ask for Now"):
        _set(operator, node, {"type": POWER_CYCLE_REQUESTED, "lastTransitionTime": LATER})


def test_open_an_operator_withdraws_by_a_condition_what_an_administrator_asked_for(
    operator: Cluster, administrator: Cluster, cluster: Cluster, node: str
) -> None:
    """A condition bears no name. What is asked for by a Maintenance is safe from it."""
    _set(administrator, node, _condition(POWER_CYCLE_REQUESTED, "Now", "it burns"))
    _set(operator, node, _condition(POWER_CYCLE_REQUESTED, "Withdrawn", status="False"))
    conditions = cluster.get(NODES, node)["status"]["conditions"]
    assert [c["status"] for c in conditions if c["type"] == POWER_CYCLE_REQUESTED] == ["False"]


@pytest.mark.parametrize("status", ["True", "False"])
def test_many_requests_do_not_keep_the_kubelet_from_its_status(
    operator: Cluster, cluster: Cluster, node: str, kubelet: Cluster, status: str
) -> None:
    """A policy whose expressions cost too much refuses every write of the status, the kubelet's, too."""
    before = cluster.get(NODES, node)["status"]["conditions"]
    many = [_condition(HOLD_REQUESTED, "Held", f"{n}", status) for n in range(200)]
    with pytest.raises(Refused, match=r"200 conditions provisioner\.dev/…Requested, of at most 32"):
        _set_all(operator, node, [*before, *many])
    _set_all(operator, node, [*before, *many[:32]])
    _set(kubelet, node, _condition("Ready", "KubeletReady", "alive"))


def test_long_requests_do_not_keep_the_kubelet_from_its_status(
    operator: Cluster, cluster: Cluster, node: str, kubelet: Cluster
) -> None:
    before = cluster.get(NODES, node)["status"]["conditions"]
    long = [_condition(HOLD_REQUESTED, "Held", f"{n} " + "x" * 40_000) for n in range(32)]
    with pytest.raises(Refused, match="a message of more than 4096 characters"):
        _set_all(operator, node, [*before, *long])
    longest = [_condition(HOLD_REQUESTED, "Held", f"{n:02} " + "x" * 4093) for n in range(32)]
    _set_all(operator, node, [*before, *longest])
    _set(kubelet, node, _condition("Ready", "KubeletReady", "alive"))


def test_a_node_does_not_hide_behind_thousands_of_conditions(cluster: Cluster, node: str, kubelet: Cluster) -> None:
    before = cluster.get(NODES, node)["status"]["conditions"]
    for count in (257, 3000):
        many = [_condition(f"example.com/{n}", "Noise") for n in range(count)]
        with pytest.raises(Refused, match=r"conditions, of at most 256"):
            _set_all(kubelet, node, [*before, *many])
    _set_all(kubelet, node, [*before, *many[:200]])


@pytest.mark.parametrize("key", [PREPARED_ORDER_ANNOTATION, SERVER_UID_ANNOTATION])
def test_a_node_does_not_say_for_which_order_it_was_prepared(
    cluster: Cluster, node: str, kubelet: Cluster, key: str
) -> None:
    """With the next order's id there the taint of its verification would not be put on."""
    for forged in ("next-order", None):
        with pytest.raises(Refused, match=f"system:node:{node} may not write {key}"):
            _annotate(kubelet, node, key, forged)
        _annotate(cluster, node, key, "order")


def test_the_agent_goes_on_reporting(kubelet: Cluster, node: str) -> None:
    for key in (NODE_FACTS_ANNOTATION, BOOT_REPORT_ANNOTATION):
        for subresource in (None, "status"):
            said = json.dumps({"by": subresource})
            _annotate(kubelet, node, key, said, subresource)
            assert kubelet.get(NODES, node)["metadata"]["annotations"][key] == said


@pytest.mark.parametrize(
    "key", [NODE_FACTS_ANNOTATION, BOOT_REPORT_ANNOTATION, PREPARED_ORDER_ANNOTATION, SERVER_UID_ANNOTATION]
)
def test_a_tool_that_may_write_a_nodes_status_speaks_for_no_machine_and_no_controller(
    control_plane: ControlPlane, cluster: Cluster, node: str, tmp_path: Path, key: str
) -> None:
    """Without the mark of its order a running Node would be prepared anew, and its pods evicted by the taint."""
    _annotate(cluster, node, key, "as it was")
    rbac = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}]
    body = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "reporter"}, "rules": rules}
    cluster.apply(body, manager="tests")
    bind(cluster, "reporter", "reporter")
    reporter = Cluster.connect(kubeconfig_of(control_plane, tmp_path, "reporter"))
    _set(reporter, node, _condition("KernelDeadlock", "NoDeadlock"))
    for forged in ("{}", None):
        with pytest.raises(Refused, match=f"reporter may not write {key}"):
            _annotate(reporter, node, key, forged)


def _file(who: Cluster, name: str, server: str, user: str = "alice") -> None:
    entry = {"name": f"user-{user}", "user": user, "action": "Reboot"}
    who.create(of(Maintenance), maintenance(name, serverRef=server, requestors=[entry]))


def test_nobody_deletes_a_maintenance_by_an_owner_that_is_not_there(
    operator: Cluster, administrator: Cluster, unique: str
) -> None:
    _file(administrator, unique, unique, user="ada")
    owner = {"apiVersion": "v1", "kind": "Node", "name": f"no-{unique}", "uid": "00000000-0000-4000-8000-000000000000"}
    with pytest.raises(Refused, match="alice may not change the owners of Maintenance"):
        operator.patch(of(Maintenance), unique, {"metadata": {"ownerReferences": [owner]}})


@pytest.mark.parametrize("name", ["{0}-1", "{0}-0", "{0}-01", "{0}-1000000000"])
def test_nobody_takes_the_numbers_of_another_server(operator: Cluster, unique: str, name: str) -> None:
    """The number is the lock: whoever has it keeps the controller from filing what somebody else asks for. What is no
    number of the controller's is no own one, either."""
    with pytest.raises(Refused, match="bears the number of another"):
        _file(operator, name.format(unique), f"{unique}-other" if name == "{0}-1" else unique)


@pytest.mark.parametrize("name", ["{0}-1", "{0}-999999999", "{0}", "{0}-rollout", "{0}-1-x"])
def test_everybody_may_number_those_of_its_own_server(operator: Cluster, unique: str, name: str) -> None:
    _file(operator, name.format(unique), unique)
    assert operator.get(of(Maintenance), name.format(unique))["spec"]["serverRef"] == unique


def test_the_controller_numbers_as_it_must(account: Callable[[str], Cluster], unique: str) -> None:
    entry = {"name": "condition-reboot", "action": "Reboot"}
    body = maintenance(f"{unique}-1000000000", serverRef=unique, requestors=[entry])
    account("maintenance").create(of(Maintenance), body)
