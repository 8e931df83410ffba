"""FakeCluster proven: each scenario runs on it and on a real API server, and must come out equal, errors included."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.errors import Conflict, ProvisionerError
from provisioner.cluster.client import Cluster
from provisioner.cluster.json_patch import pointer
from provisioner.cluster.resources import CONFIG_MAPS, LEASES, NODES, POD_DISRUPTION_BUDGETS, PODS, ResourceType, of
from tests.cluster.fake_cluster import FakeCluster

MAINTENANCES, SERVERS = of(Maintenance), of(Server)
Outcome = dict[str, Any]
Scenario = Callable[["Player"], None]


class Player:
    """Plays a scenario at one door and writes down what came of it, without what differs by nature."""

    def __init__(self, door: Any, name: str) -> None:
        self.door, self.name = door, name
        self.log: list[Any] = []

    def note(self, what: Any) -> None:
        self.log.append(what)

    def attempt(self, call: Callable[[], Any]) -> Any:
        """Do it; note which error came of it, or what was returned."""
        try:
            result = call()
        except ProvisionerError as error:
            print(f"{type(self.door).__name__}: {error}")
            self.note(type(error).__name__)
            return None
        self.note(self.plain(result))
        return result

    def plain(self, body: Any) -> Any:
        """An object without times, uids and versions; conditions and taints in a fixed order."""
        if not isinstance(body, dict) or "metadata" not in body:
            return body
        kept = {
            key: value
            for key, value in body["metadata"].items()
            if key in ("name", "generation", "labels", "annotations", "finalizers")
        }
        kept["deleting"] = "deletionTimestamp" in body["metadata"]
        rest = {key: value for key, value in body.items() if key in ("spec", "status", "data")}
        return _sorted({"metadata": kept, **rest})

    def show(self, type_: ResourceType, name: str | None = None, namespace: str | None = None) -> None:
        self.attempt(lambda: self.door.get(type_, name or self.name, namespace=namespace))


def _sorted(value: Any) -> Any:
    """In a fixed order, and without what the API server fills in as empty."""
    if isinstance(value, dict):
        filled_in = ("daemonEndpoints", "nodeInfo")
        kept = ((key, _sorted(item)) for key, item in sorted(value.items()) if key not in filled_in)
        return {key: item for key, item in kept if item not in (None, {}, [])}
    if isinstance(value, list):
        # The controller manager puts its own taints on Nodes, and takes them off.
        own = [item for item in value if not str(dict_of(item).get("key")).startswith("node.kubernetes.io/")]
        return sorted((_sorted(item) for item in own), key=repr)
    return value


def dict_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def maintenance(server: str, /, **requestor: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"serverRef": server}
    if requestor:
        spec["requestors"] = [requestor]
    return {
        "apiVersion": "provisioner.dev/v1alpha1",
        "kind": "Maintenance",
        "metadata": {"name": server},
        "spec": spec,
    }


def node(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}}


def condition(type_: str, status: str, **more: str) -> dict[str, Any]:
    moment = "2026-01-02T03:04:05Z"
    return {"type": type_, "status": status, "reason": "R", "message": "m", "lastTransitionTime": moment, **more}


def requestors_of_several_managers(p: Player) -> None:
    p.attempt(lambda: p.door.apply(maintenance(p.name, name="a", action="Reboot"), manager="one"))
    p.attempt(lambda: p.door.apply(maintenance(p.name, name="b", action="Drain", policy="Now"), manager="two"))
    p.attempt(lambda: p.door.apply(maintenance(p.name, name="a", action="Reimage"), manager="one"))
    p.attempt(lambda: p.door.apply(maintenance(p.name), manager="one"))
    p.attempt(lambda: p.door.apply(maintenance(p.name), manager="two"))
    p.show(MAINTENANCES)


def one_requestor_in_two_hands(p: Player) -> None:
    first = maintenance(p.name, name="a", action="Reboot", message="first")
    p.attempt(lambda: p.door.apply(first, manager="one"))
    second = maintenance(p.name, name="a", action="Reboot", message="second")
    p.attempt(lambda: p.door.apply(second, manager="two", force=False))
    p.attempt(lambda: p.door.apply(second, manager="two"))
    p.attempt(lambda: p.door.apply(maintenance(p.name), manager="one"))
    p.attempt(lambda: p.door.apply(maintenance(p.name), manager="two"))


def parts_of_one_status(p: Player) -> None:
    p.door.apply(maintenance(p.name, name="a", action="Reboot"), manager="one")
    slurm = {"node": "n", "reason": "r"}

    def status(manager: str, **fields: Any) -> None:
        p.attempt(lambda: p.door.apply_status(Maintenance, p.name, fields, manager=manager))

    status("x", phase="Waiting", slurm=slurm, conditions=[condition("A", "True")])
    status("y", nodeUID="u", conditions=[condition("B", "False")])
    status("x", phase="Claiming", conditions=[condition("A", "False")])
    status("y")
    status("x", phase="Nonsense")
    status("x", phase="Waiting", startedTime="yesterday")
    status("x", conditions=[])
    p.attempt(lambda: p.door.apply_status(Maintenance, p.name, {"phase": "Waiting"}, manager="x", resource_version="1"))
    p.attempt(lambda: p.door.apply_status(Maintenance, f"{p.name}-absent", {"phase": "Waiting"}, manager="x"))


def a_finalizer_keeps_what_is_deleted(p: Player) -> None:
    body = maintenance(p.name, name="a", action="Reboot")
    body["metadata"]["finalizers"] = ["provisioner.dev/release"]
    created = p.attempt(lambda: p.door.create(MAINTENANCES, body))
    p.attempt(lambda: p.door.delete(MAINTENANCES, p.name, uid="00000000-0000-4000-8000-000000000000"))
    p.attempt(lambda: p.door.delete(MAINTENANCES, p.name, uid=created["metadata"]["uid"]))
    p.show(MAINTENANCES)
    p.attempt(lambda: p.door.delete(MAINTENANCES, p.name))
    p.show(MAINTENANCES)
    grown = {"metadata": {"finalizers": ["provisioner.dev/release", "example.com/other"]}}
    p.attempt(lambda: p.door.patch(MAINTENANCES, p.name, grown))
    p.attempt(lambda: p.door.apply_status(Maintenance, p.name, {"phase": "Cancelled"}, manager="x"))
    p.attempt(lambda: p.door.create(MAINTENANCES, body))
    p.attempt(lambda: p.door.patch(MAINTENANCES, p.name, {"metadata": {"finalizers": None}}))
    p.show(MAINTENANCES)
    p.attempt(lambda: p.door.delete(MAINTENANCES, p.name))


def a_finalizer_by_apply(p: Player) -> None:
    body = maintenance(p.name, name="a", action="Reboot")
    p.attempt(lambda: p.door.apply(body, manager="one"))
    held = {**body, "metadata": {"name": p.name, "finalizers": ["provisioner.dev/release"]}}
    held.pop("spec")
    p.attempt(lambda: p.door.apply(held, manager="holder"))
    p.attempt(lambda: p.door.delete(MAINTENANCES, p.name))
    held = {**held, "metadata": {"name": p.name}}
    p.attempt(lambda: p.door.apply(held, manager="holder"))
    p.show(MAINTENANCES)


def what_is_wrong_is_refused(p: Player) -> None:
    p.attempt(lambda: p.door.create(MAINTENANCES, maintenance(p.name, name="a", action="Explode")))
    p.attempt(lambda: p.door.create(MAINTENANCES, maintenance(p.name, name="a")))
    p.attempt(lambda: p.door.create(MAINTENANCES, maintenance(p.name, name="a", action="Drain", unknown="field")))
    p.attempt(lambda: p.door.create(MAINTENANCES, maintenance(p.name)))
    body = p.door.get(MAINTENANCES, p.name)
    p.attempt(lambda: p.door.replace(MAINTENANCES, {**body, "metadata": {"name": p.name}}))
    p.attempt(lambda: p.door.replace(MAINTENANCES, {**body, "spec": {"serverRef": p.name}}))
    p.attempt(lambda: p.door.replace(MAINTENANCES, {**body, "spec": {"serverRef": p.name, "requestors": []}}))
    p.attempt(lambda: p.door.apply({**maintenance(p.name), "metadata": {"name": p.name, "uid": "x"}}, manager="one"))
    absent = {**maintenance(p.name), "metadata": {"name": f"{p.name}-absent", "resourceVersion": "1"}}
    p.attempt(lambda: p.door.apply(absent, manager="one"))
    p.attempt(lambda: p.door.create(MAINTENANCES, {**absent, "metadata": {"name": "x", "resourceVersion": "1"}}))
    p.attempt(lambda: p.door.patch(MAINTENANCES, f"{p.name}-absent", {"metadata": {"labels": {"a": "b"}}}))
    p.show(MAINTENANCES, f"{p.name}-absent")


def what_is_equal_is_not_written(p: Player) -> None:
    first = p.door.apply(maintenance(p.name, name="a", action="Reboot"), manager="one")
    second = p.door.patch(MAINTENANCES, p.name, {"spec": {"requestors": first["spec"]["requestors"]}}, manager="one")
    p.note(first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"])
    status = p.door.apply_status(Maintenance, p.name, {"phase": "Waiting"}, manager="x")
    again = p.door.apply_status(Maintenance, p.name, {"phase": "Waiting"}, manager="x")
    p.note(status["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"])
    p.note(first["metadata"]["resourceVersion"] == status["metadata"]["resourceVersion"])
    p.attempt(lambda: p.door.patch(MAINTENANCES, p.name, {"metadata": {"labels": {"a": "b"}}}))
    p.attempt(lambda: p.door.patch(MAINTENANCES, p.name, {"status": {"phase": "Failed"}}))
    p.attempt(
        lambda: p.door.patch(
            MAINTENANCES, p.name, {"spec": {"requestors": []}, "status": {"phase": "Failed"}}, subresource="status"
        )
    )


def what_is_changed_of_a_node_as_it_was_read(p: Player) -> None:
    p.door.create(NODES, node(p.name))
    taint = {"key": "one/two", "value": "x-y", "effect": "NoSchedule"}
    taints, note, label = "/spec/taints", pointer("metadata", "annotations", "one/two"), "/metadata/labels/l"

    def untainted() -> Any:
        """The controller manager comes in between."""
        return p.door.patch(NODES, p.name, {"spec": {"taints": None}})

    read = untainted()
    p.attempt(lambda: p.door.patch(NODES, p.name, {"metadata": {"labels": {"other": "1"}}}))
    p.attempt(lambda: p.door.patch_seen(NODES, read, {note: "1"}))
    p.attempt(lambda: p.door.patch_seen(NODES, read, {note: "2"}))
    p.attempt(lambda: p.door.patch_seen(NODES, read, {label: "2"}))
    read = untainted()
    p.attempt(lambda: p.door.patch_seen(NODES, read, {note: "2", label: "2", "/metadata/labels/m": None}))
    p.attempt(lambda: p.door.patch_seen(NODES, read, {"/metadata/labels/m": "1"}, relies_on=[label]))
    read = untainted()
    p.attempt(lambda: p.door.patch_seen(NODES, read, {note: None}, relies_on=["/status/nodeInfo/bootID"]))
    p.attempt(lambda: p.door.patch_seen(NODES, read, {note: None}))
    read = untainted()
    p.attempt(lambda: p.door.patch_seen(NODES, read, {taints: [taint]}, relies_on=["/metadata/annotations/a/b"]))
    p.attempt(lambda: p.door.patch_seen(NODES, read, {taints: [taint]}))
    p.attempt(lambda: p.door.patch_seen(NODES, {**read, "metadata": {"name": p.name, "uid": "other"}}, {note: "1"}))
    p.door.delete(NODES, p.name)
    p.attempt(lambda: p.door.patch_seen(NODES, read, {note: "1"}))


def taints_and_annotations_of_a_node(p: Player) -> None:
    created = p.attempt(lambda: p.door.create(NODES, node(p.name, annotations={"a": "1"})))
    taint = {"key": "provisioner.dev/maintenance", "value": "x", "effect": "NoSchedule"}
    p.note([taint["key"] for taint in created["spec"]["taints"]])
    stale: dict[str, Any] = {}

    def patch_the_newest() -> Any:
        for _ in range(10):
            version = p.door.get(NODES, p.name)["metadata"]["resourceVersion"]
            metadata = {"resourceVersion": version, "annotations": {"a": None, "b": "2"}}
            stale.update({"metadata": metadata, "spec": {"taints": [taint]}})
            with contextlib.suppress(Conflict):  # the controller manager was faster
                return p.door.patch(NODES, p.name, stale, manager="one")
        raise AssertionError(f"Node {p.name} changed each time between being read and being written")

    p.attempt(patch_the_newest)
    p.attempt(lambda: p.door.patch(NODES, p.name, stale, manager="one"))
    p.attempt(lambda: p.door.patch(NODES, p.name, {"spec": {"unschedulable": True}}))
    p.attempt(lambda: p.door.apply(node(p.name, labels={"l": "1"}), manager="labels"))
    p.attempt(lambda: p.door.apply(node(p.name, annotations={"b": "2", "c": "3"}), manager="notes"))
    p.attempt(lambda: p.door.apply(node(p.name), manager="notes"))
    p.attempt(lambda: p.door.patch(NODES, p.name, {"spec": {"taints": None}}))
    p.attempt(lambda: p.door.patch(NODES, p.name, {"metadata": {"uid": "another"}, "spec": {"taints": [taint]}}))
    before = p.door.get(NODES, p.name)["metadata"]
    p.attempt(lambda: p.door.delete(NODES, p.name))
    p.attempt(lambda: p.door.patch(NODES, p.name, {"spec": {"taints": [taint]}}))
    p.door.create(NODES, node(p.name))
    replaced = {"metadata": {"uid": before["uid"], "resourceVersion": before["resourceVersion"]}}
    p.attempt(lambda: p.door.patch(NODES, p.name, {**replaced, "spec": {"taints": [taint]}}))


def conditions_of_a_node(p: Player) -> None:
    p.door.create(NODES, {**node(p.name), "status": {"conditions": [condition("Ready", "True")]}})
    p.show(NODES)

    def strategic(*conditions: dict[str, Any], **more: Any) -> None:
        patch = {"status": {"conditions": list(conditions)}, **more}
        p.attempt(lambda: p.door.strategic_patch(NODES, p.name, patch, subresource="status", manager="one"))

    strategic(condition("Mine", "True"))
    strategic({"type": "Mine", "status": "False"}, condition("Other", "True"))
    strategic({"type": "Other", "$patch": "delete"})
    strategic(condition("Mine", "True"), metadata={"resourceVersion": "1"})
    body = {**node(p.name), "status": {"conditions": [condition("Applied", "True")]}}
    p.attempt(lambda: p.door.apply(body, manager="two", subresource="status"))
    p.attempt(lambda: p.door.apply({**node(p.name), "status": {}}, manager="two", subresource="status"))
    p.attempt(lambda: p.door.patch(NODES, p.name, {"status": {"conditions": []}}))
    replaced = {"metadata": {"annotations": {"by": "status"}}, "status": {"conditions": [condition("Only", "True")]}}
    p.attempt(lambda: p.door.patch(NODES, p.name, replaced, subresource="status"))
    info = {"status": {"nodeInfo": {"bootID": "b"}}}
    patched = p.door.patch(NODES, p.name, info, subresource="status")
    p.note(patched["status"]["nodeInfo"]["bootID"])


def lists_by_selector(p: Player) -> None:
    for number, server in enumerate((p.name, p.name, f"{p.name}-other")):
        body = maintenance(server)
        body["metadata"] = {"name": f"{p.name}-{number}", "labels": {"run": p.name, "n": str(number)}}
        p.door.create(MAINTENANCES, body)

    def names(**selectors: str) -> None:
        found = p.door.list(MAINTENANCES, **selectors).items
        p.note([item["metadata"]["name"].replace(p.name, "") for item in found])

    names(field_selector=f"spec.serverRef={p.name}")
    names(label_selector=f"run={p.name}", field_selector=f"spec.serverRef!={p.name}")
    names(field_selector=f"metadata.name={p.name}-1")
    for labels in ("n in (0,2)", "n notin (0,2)", "n!=1", "!n", "n", "absent", "n=1"):
        names(label_selector=f"run={p.name},{labels}")
    p.note([m.name.replace(p.name, "") for m in p.door.read_all(Maintenance, label_selector=f"run={p.name}")])
    p.note(p.door.read(Maintenance, f"{p.name}-0").spec.server_ref.replace(p.name, ""))
    p.attempt(lambda: p.door.read(NodePool, f"{p.name}-absent"))


def things_in_namespaces(p: Player) -> None:
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": p.name}}
    moment = "2026-01-02T03:04:05.000000Z"
    p.attempt(lambda: p.door.create(LEASES, {**lease, "spec": {"renewTime": moment}}, namespace="kube-node-lease"))
    p.attempt(lambda: p.door.create(LEASES, lease, namespace="kube-node-lease"))
    p.attempt(lambda: p.door.create(LEASES, lease, namespace=f"{p.name}-absent"))
    found = p.door.get(LEASES, p.name, namespace="kube-node-lease")
    p.attempt(lambda: p.door.replace(LEASES, {**found, "spec": {"holderIdentity": "x", "renewTime": moment}}))
    p.attempt(lambda: p.door.replace(LEASES, found))
    data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": p.name, "namespace": "default"}}
    p.attempt(lambda: p.door.apply({**data, "data": {"a": "1", "b": "2"}}, manager="one"))
    p.attempt(lambda: p.door.apply({**data, "data": {"c": "3"}}, manager="two"))
    p.attempt(lambda: p.door.apply({**data, "data": {"a": "2"}}, manager="two", force=False))
    p.attempt(lambda: p.door.apply({**data, "data": {"a": "2"}}, manager="one", dry_run=True))
    p.attempt(lambda: p.door.apply({**data, "data": {"a": "1"}}, manager="one"))
    p.show(CONFIG_MAPS, namespace="default")


def pods_and_their_budgets(p: Player) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": p.name, "serviceAccountName": "default"}
    labels = {"app": p.name}

    def pod(name: str, **more: Any) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "default", "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**spec, **more}}

    quick = {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 30}
    first = p.door.create(PODS, pod(f"{p.name}-1", **quick))
    second = p.door.create(PODS, pod(f"{p.name}-2", **quick))
    metadata = {"name": p.name, "namespace": "default"}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata}
    budget["spec"] = {"selector": {"matchLabels": labels}, "minAvailable": 1}
    p.door.create(POD_DISRUPTION_BUDGETS, budget)

    def evict(body: dict[str, Any], uid: str | None = None) -> None:
        name = body["metadata"]["name"]
        p.attempt(lambda: p.door.evict(name, "default", uid=uid or body["metadata"]["uid"]))
        found = p.door.get(PODS, name, namespace="default")
        p.note("deletionTimestamp" in found["metadata"])

    def running(body: dict[str, Any]) -> None:
        ready = {"type": "Ready", "status": "True", "lastProbeTime": None}
        status = {"phase": "Running", "conditions": [ready]}
        p.door.patch(PODS, body["metadata"]["name"], {"status": status}, namespace="default", subresource="status")

    running(first)
    running(second)
    status = {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2}
    status |= {"desiredHealthy": 1, "expectedPods": 2}
    p.door.patch(POD_DISRUPTION_BUDGETS, p.name, {"status": status}, namespace="default", subresource="status")
    evict(first)
    evict(second)
    evict(first, uid="00000000-0000-4000-8000-000000000000")
    by_node = p.door.list(PODS, namespace="default", field_selector=f"spec.nodeName={p.name}").items
    p.note(sorted(item["metadata"]["name"].replace(p.name, "") for item in by_node))
    p.attempt(lambda: p.door.evict(f"{p.name}-absent", "default", uid="x"))


SCENARIOS: tuple[Scenario, ...] = (
    requestors_of_several_managers,
    one_requestor_in_two_hands,
    parts_of_one_status,
    a_finalizer_keeps_what_is_deleted,
    a_finalizer_by_apply,
    what_is_wrong_is_refused,
    what_is_equal_is_not_written,
    taints_and_annotations_of_a_node,
    what_is_changed_of_a_node_as_it_was_read,
    conditions_of_a_node,
    lists_by_selector,
    things_in_namespaces,
    pods_and_their_budgets,
)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_fake_answers_as_the_api_server_does(scenario: Scenario, cluster: Cluster, unique: str) -> None:
    real, fake = Player(cluster, unique), Player(FakeCluster(), unique)
    scenario(real)
    scenario(fake)
    steps = [(step, was) for step, was in zip(fake.log, real.log, strict=True)]
    for number, (said, expected) in enumerate(steps):
        assert said == expected, f"step {number} of {scenario.__name__}: the fake says {said}"


def test_the_fake_names_what_is_absent_in_the_api_servers_words(cluster: Cluster, unique: str) -> None:
    def words(door: Any) -> str:
        with pytest.raises(ProvisionerError) as caught:
            door.get(MAINTENANCES, unique)
        return re.sub(r"\s+", " ", str(caught.value))

    assert words(FakeCluster()) == words(cluster)
