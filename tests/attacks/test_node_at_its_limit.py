"""Root on a machine fills its own Node, with the kubelet's certificate, until nothing more fits: it is drained and
booted all the same. And what the API server lastingly refuses holds no slot of the budget."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lab.control_plane.plane import ControlPlane
from provisioner.api.machinery.errors import Refused, Retryable
from provisioner.api.nodes.contract import (
    BOOT_INTENT_ANNOTATION,
    BOOT_REPORT_ANNOTATION,
    DRAIN_REQUESTED,
    HOLD_REQUESTED,
    MAINTENANCE_CONDITIONS,
    POWER_CYCLE_REQUESTED,
    PREPARED_ORDER_ANNOTATION,
    REBOOT_REQUESTED,
)
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import NODES, ResourceType
from tests.maintenance.plane import Plane
from tests.people import BINDINGS, POLICIES, condition, kubeconfig_of, until


@pytest.fixture
def plane(cluster: Cluster, account: Callable[[str], Cluster], unique: str) -> Plane:
    return Plane(cluster, account("maintenance"), unique, servers=2)


@pytest.fixture
def kubelet(control_plane: ControlPlane, plane: Plane, tmp_path: Path) -> Cluster:
    """Root on the machine, with its kubelet's certificate."""
    return Cluster.connect(kubeconfig_of(control_plane, tmp_path, f"system:node:{plane.name}", group="system:nodes"))


def many(count: int, prefix: str = "example.com/noise") -> dict[str, Any]:
    conditions = [{"type": f"{prefix}-{n}", "status": "True", "reason": "Noise"} for n in range(count)]
    return {"status": {"conditions": conditions}}


def annotations(text: str, key: str = "example.com/noise") -> dict[str, Any]:
    return {"metadata": {"annotations": {key: text}}}


def images(kilobytes: int) -> dict[str, Any]:
    return {"status": {"images": [{"names": [f"{n:05}" + "x" * 995], "sizeBytes": 1} for n in range(kilobytes)]}}


def fill_conditions(root: Cluster, name: str) -> None:
    root.strategic_patch(NODES, name, many(255), subresource="status")
    with pytest.raises(Refused, match="of at most 256"):
        root.strategic_patch(NODES, name, many(256), subresource="status")


def fill_annotations(root: Cluster, name: str) -> None:
    key = "example.com/noise"
    there = root.get(NODES, name)["metadata"]["annotations"]
    room = 131072 - sum(len(k) + len(v) for k, v in there.items()) - len(key)
    # Of the cluster's own controllers each may write a short one meanwhile.
    root.strategic_patch(NODES, name, annotations("x" * (room - 512)), subresource="status")
    with pytest.raises(Refused, match="of at most 131072"):
        root.strategic_patch(NODES, name, annotations("x" * (room + 512)), subresource="status")


def fill_all(root: Cluster, name: str) -> None:
    root.strategic_patch(NODES, name, images(1010), subresource="status")
    with pytest.raises(Refused, match="of at most 1048576"):
        root.strategic_patch(NODES, name, images(1040), subresource="status")


def fill_keys(root: Cluster, name: str) -> None:
    for field in ("labels", "annotations"):
        there = root.get(NODES, name)["metadata"].get(field) or {}
        noise = {f"example.com/{n}": "" for n in range(1025 - len(there))}
        with pytest.raises(Refused, match="of at most 1024 each"):
            root.strategic_patch(NODES, name, {"metadata": {field: noise}}, subresource="status")
        noise = dict(list(noise.items())[: 1000 - len(there)])  # the cluster's own controllers may write some meanwhile
        root.strategic_patch(NODES, name, {"metadata": {field: noise}}, subresource="status")


def fill_lists(root: Cluster, name: str) -> None:
    def small(count: int) -> dict[str, Any]:
        return {"status": {"images": [{"names": [str(n)], "sizeBytes": 1} for n in range(count)]}}

    with pytest.raises(Refused, match="of at most 4096 for system:node:"):
        root.strategic_patch(NODES, name, small(4097), subresource="status")
    root.strategic_patch(NODES, name, small(4000), subresource="status")


FILLINGS = (fill_conditions, fill_annotations, fill_all, fill_keys, fill_lists)


@pytest.mark.parametrize("filling", FILLINGS)
def test_a_node_that_its_machine_has_filled_is_drained_told_to_boot_and_answered(
    plane: Plane,
    kubelet: Cluster,
    operator: Cluster,
    account: Callable[[str], Cluster],
    filling: Callable[[Cluster, str], None],
) -> None:
    filling(kubelet, plane.name)
    operator.strategic_patch(
        NODES, plane.name, condition(REBOOT_REQUESTED, "WhenIdle", "it is full"), subresource="status"
    )
    plane.work()
    assert (plane.phase(), plane.is_closed()) == ("Rebooting", True)
    plane.order()
    long = "x" * 16000  # as long as an intent may be
    plane.client.patch(NODES, plane.name, annotations(long, BOOT_INTENT_ANNOTATION))
    account("join").patch(NODES, plane.name, annotations(long, PREPARED_ORDER_ANNOTATION))
    assert plane.condition("MaintenanceInProgress")["status"] == "True"


def test_what_a_machine_writes_under_many_names_of_managers_counts(plane: Plane, kubelet: Cluster) -> None:
    """Each that applies something is on record with every key of it."""
    keys = many(4, f"example.com/{'x' * 50_000}")
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": plane.name}, **keys}

    def apply(count: int) -> None:
        for number in range(count):
            kubelet.apply(body, manager=f"noise-{number}", subresource="status")

    with pytest.raises(Refused, match="bytes, of at most 1048576"):
        apply(20)
    plane.client.patch(NODES, plane.name, annotations("x" * 16000, BOOT_INTENT_ANNOTATION))


@pytest.mark.parametrize(("type_", "ends"), [(DRAIN_REQUESTED, "Drained"), (POWER_CYCLE_REQUESTED, "Rebooting")])
def test_a_node_of_256_conditions_is_drained_and_power_cycled_now(
    plane: Plane, kubelet: Cluster, administrator: Cluster, type_: str, ends: str
) -> None:
    fill_conditions(kubelet, plane.name)
    administrator.strategic_patch(
        NODES, plane.name, condition(type_, "Now", "it was broken into"), subresource="status"
    )
    plane.work()
    assert (plane.phase(), plane.is_closed()) == (ends, True)


@pytest.fixture
def flood(kubelet: Cluster, plane: Plane) -> Iterator[Callable[[], int]]:
    """The machine writes its Node without pause; returns how often it has."""
    over, written = threading.Event(), [0] * 3

    def write(number: int) -> None:
        while not over.is_set():
            beat = condition("example.com/beat", f"Beat{number}", str(written[number]))
            with suppress(Retryable):
                kubelet.strategic_patch(NODES, plane.name, beat, subresource="status")
                written[number] += 1

    threads = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(len(written))]
    for thread in threads:
        thread.start()
    yield lambda: sum(written)
    over.set()
    for thread in threads:
        thread.join(60)


def test_a_machine_that_writes_its_node_without_pause_is_drained_and_told_to_boot(
    plane: Plane, flood: Callable[[], int]
) -> None:
    until(lambda: flood() > 20)
    plane.ask(DRAIN_REQUESTED, "Now", "it was broken into")
    plane.work()
    assert (plane.phase(), plane.is_closed()) == ("Drained", True)
    before = flood()
    until(lambda: flood() > before + 20)
    plane.ask(REBOOT_REQUESTED, "Now", "it was broken into")
    plane.work()
    plane.order()
    plane.work()
    assert plane.phase() == "Rebooting"
    assert BOOT_INTENT_ANNOTATION in plane.cluster.get(NODES, plane.name)["metadata"]["annotations"]


def test_what_the_executor_says_does_not_keep_the_kubelet_from_reporting_nor_let_it_add_more(
    plane: Plane, kubelet: Cluster
) -> None:
    fill_conditions(kubelet, plane.name)
    plane.ask(DRAIN_REQUESTED, "Now")
    plane.work()
    before = kubelet.get(NODES, plane.name)["status"]["conditions"]
    kubelet.strategic_patch(NODES, plane.name, condition("Ready", "KubeletReady", "beat"), subresource="status")
    kept = [c for c in before if c["type"] not in MAINTENANCE_CONDITIONS]
    more = [*kept, *many(len(before) - len(kept), "example.com/more")["status"]["conditions"]]
    with pytest.raises(Refused, match="of at most 256 beside those of the provisioner"):
        kubelet.patch(NODES, plane.name, {"status": {"conditions": more}}, subresource="status")


def test_a_machine_does_not_take_the_places_of_those_who_ask(plane: Plane, kubelet: Cluster, operator: Cluster) -> None:
    asked = [{"type": f"provisioner.dev/Noise{n}Requested", "status": "False", "reason": "Noise"} for n in range(32)]
    with pytest.raises(Refused, match="is a node: a node neither asks"):
        kubelet.strategic_patch(NODES, plane.name, {"status": {"conditions": asked}}, subresource="status")
    fill_conditions(kubelet, plane.name)
    hold = condition(HOLD_REQUESTED, "Investigating", "its fan")
    operator.strategic_patch(NODES, plane.name, hold, subresource="status")
    withdrawn = condition(DRAIN_REQUESTED, "Withdrawn", status="False")
    operator.strategic_patch(NODES, plane.name, withdrawn, subresource="status")
    there = kubelet.get(NODES, plane.name)["status"]["conditions"]
    again = [*there, {"type": HOLD_REQUESTED, "status": "False", "reason": "Noise"}]
    instead = [*(c for c in there if c["type"] != DRAIN_REQUESTED), asked[0]]
    for conditions in (again, instead):
        with pytest.raises(Refused, match="is a node: a node neither asks"):
            kubelet.patch(NODES, plane.name, {"status": {"conditions": conditions}}, subresource="status")
    kubelet.strategic_patch(NODES, plane.name, condition("Ready", "KubeletReady", "beat"), subresource="status")


def test_a_kubelet_and_its_agent_have_room_enough(plane: Plane, kubelet: Cluster) -> None:
    names = [f"registry.example.com/team/image@sha256:{'ab' * 32}", "registry.example.com/team/image:v1.2.3"]
    pictures = [{"names": [f"{n}.{name}" for name in names * 2], "sizeBytes": 1} for n in range(500)]
    kubelet.strategic_patch(NODES, plane.name, {"status": {"images": pictures}}, subresource="status")
    kubelet.strategic_patch(NODES, plane.name, annotations("x" * 65536, BOOT_REPORT_ANNOTATION))
    conditions = [f"example.com/{n}" for n in range(100)]
    for type_ in conditions[:3]:
        kubelet.strategic_patch(NODES, plane.name, condition(type_, "Found"), subresource="status")
    node = kubelet.get(NODES, plane.name)
    assert len(node["status"]["images"]) == len(pictures)
    assert len(node["metadata"]["annotations"][BOOT_REPORT_ANNOTATION]) == 65536
    assert set(conditions[:3]) <= {each["type"] for each in node["status"]["conditions"]}


@pytest.fixture
def forbidden(cluster: Cluster, plane: Plane) -> Iterator[Callable[[], None]]:
    """A policy of the site: nobody changes the taints of this Node. Call it to take the policy away."""
    name = f"site-{plane.unique}"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["nodes"], "operations": ["UPDATE"]}
            ]
        },
        "matchConditions": [{"name": "this-one", "expression": f"object.metadata.name == '{plane.name}'"}],
        "validations": [
            {"expression": "object.spec.?taints == oldObject.spec.?taints", "message": "the site keeps its taints"}
        ],
    }
    policy = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": {"name": name}, "spec": spec}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    binding = {"apiVersion": POLICIES.api_version, "kind": BINDINGS.kind, "metadata": {"name": name}, "spec": bound}
    taint = {"spec": {"taints": [{"key": "example.com/probe", "effect": "NoSchedule"}]}}

    def is_in_force() -> bool:
        try:
            cluster.strategic_patch(NODES, plane.name, taint, dry_run=True)
        except Refused as error:
            return "keeps its taints" in str(error)
        return False

    def lift() -> None:
        for type_ in (BINDINGS, POLICIES):
            cluster.delete(type_, name)
        until(lambda: not is_in_force())

    cluster.create(POLICIES, policy)
    cluster.create(BINDINGS, binding)
    until(is_in_force)
    yield lift
    lift()


def test_a_claim_that_is_refused_says_why_gives_its_slot_back_and_is_made_once_it_may_be(
    plane: Plane, forbidden: Callable[[], None]
) -> None:
    plane.ask(DRAIN_REQUESTED, "Now", "it was broken into")
    plane.executor.reconcile(plane.name)
    assert (plane.phase(), [b.kind for b in plane.status().blockers]) == ("Claiming", ["Node"])
    assert "the site keeps its taints" in plane.status().blockers[0].message
    for _ in range(5):
        plane.work(seconds=10)
    assert plane.phase() == "Waiting"
    (blocker,) = plane.status().blockers
    assert (blocker.kind, blocker.name) == ("Node", plane.name)
    assert "the site keeps its taints" in blocker.message
    assert "and again at 2026-" in blocker.message
    assert "NodeRefused" in plane.events.reasons("Node")
    second = plane.names[1]
    plane.ask(DRAIN_REQUESTED, "Now", name=second)
    plane.work(second)
    assert plane.phase(second) == "Drained"
    plane.set_condition({"type": DRAIN_REQUESTED, "status": "False"}, name=second)
    plane.work(second)
    forbidden()
    plane.work()
    assert plane.phase() == "Waiting"
    plane.work(seconds=60)
    assert (plane.phase(), plane.is_closed()) == ("Drained", True)


def test_an_end_that_cannot_be_written_to_the_node_holds_no_slot(plane: Plane, cluster: Cluster) -> None:
    plane.ask(DRAIN_REQUESTED, "Now")
    plane.work()
    assert plane.phase() == "Drained"
    plane.client = Refusing(plane.client)
    plane.executor = plane.start()
    plane.withdraw(DRAIN_REQUESTED)
    for _ in range(20):
        if plane.phase() == "Completed":
            break
        with suppress(Refused):  # what is left is cleared away, which is refused as well
            plane.work(seconds=5)
    assert plane.phase() == "Completed"
    assert plane.is_closed()
    plane.executor = plane.start(plane.client.cluster)
    plane.work()
    assert not plane.is_closed()


class Refusing:
    """The real client, for which the API server takes nothing of Nodes."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    def patch(self, type: ResourceType, name: str, patch: Any, **more: Any) -> Any:  # noqa: A002
        if type == NODES:
            raise Refused(f"PATCH Node {name}: {json.dumps(patch)[:40]} is too much", hint="write less")
        return self.cluster.patch(type, name, patch, **more)

    def patch_seen(self, type: ResourceType, body: Any, changes: Any, **more: Any) -> Any:  # noqa: A002
        if type == NODES:
            raise Refused(f"PATCH Node {body['metadata']['name']}: it is too much", hint="write less")
        return self.cluster.patch_seen(type, body, changes, **more)

    strategic_patch = patch
