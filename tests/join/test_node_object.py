"""The Node before its kubelet registers: planned, and in a real cluster."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import Conflict
from provisioner.api.machinery.errors import Refused as RefusedByServer
from provisioner.api.pools.node_pool import KubeletSettings, NodePool
from provisioner.api.servers.rack import Rack
from provisioner.cluster.resources import NODES, of
from provisioner.join.nodes.node_object import (
    MANAGER,
    CreateNode,
    NodeNameTaken,
    PrepareNode,
    labels_set_before,
    merge_taints,
    node_labels,
    plan_node,
    trim_node,
)
from tests.join.samples import ORDER, node, pool, rack, server, with_spec, with_status
from tests.join.world import World, again

VERIFICATION = {"key": "provisioner.dev/verification", "effect": "NoExecute"}
RESERVED = {"key": "gpu.example/reserved", "effect": "NoSchedule"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def test_a_server_without_a_node_gets_one_that_is_prepared() -> None:
    plan = plan_node(server(), pool(), rack(), None)
    assert isinstance(plan, CreateNode)
    assert plan.body == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "r01-u01",
            "annotations": {
                "provisioner.dev/server-uid": "a0000000-0000-4000-8000-00000000000a",
                "provisioner.dev/prepared-order": ORDER,
            },
            "labels": node_labels(server(), pool(), rack()),
        },
        "spec": {"taints": [RESERVED, VERIFICATION]},
    }
    assert plan.node_taints == ("gpu.example/reserved:NoSchedule",)


def test_its_labels_say_what_and_where_it_is() -> None:
    assert node_labels(server(), pool(), rack()) == {
        "gpu.example/model": "h200",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": "r01-u01",
        "kubernetes.io/os": "linux",
        "provisioner.dev/pool": "gpu",
        "provisioner.dev/rack": "r01",
        "topology.kubernetes.io/zone": "hall-a",
    }


def test_a_pool_cannot_say_that_a_server_is_another() -> None:
    settings = KubeletSettings(labels={"kubernetes.io/hostname": "x", "kubernetes.io/arch": "s390x"})
    labels = node_labels(with_spec(server(), architecture="arm64"), pool(kubelet=settings), None)
    assert labels["kubernetes.io/hostname"] == "r01-u01"
    assert labels["kubernetes.io/arch"] == "arm64"
    assert "topology.kubernetes.io/zone" not in labels


def test_a_prepared_node_is_left_alone_until_the_next_order() -> None:
    assert plan_node(server(), pool(), rack(), node()) is None
    assert isinstance(plan_node(server(), pool(), rack(), node(prepared="older")), PrepareNode)


def test_without_an_order_there_is_nothing_to_prepare() -> None:
    assert plan_node(with_status(server(), order=None), pool(), rack(), None) is None


@pytest.mark.parametrize("uid", [None, "another"])
def test_a_node_that_was_not_made_for_the_server_is_not_touched(uid: str | None) -> None:
    plan = plan_node(server(), pool(), rack(), node(uid=uid))
    assert isinstance(plan, NodeNameTaken)
    assert "delete the Node or register the server under another name" in plan.message


@pytest.mark.parametrize(
    ("why", "present", "wanted", "before", "after"),
    [
        ("ours is added", [NOT_READY], [RESERVED], set(), [NOT_READY, RESERVED]),
        ("ours is there", [RESERVED, NOT_READY], [RESERVED], set(), [NOT_READY, RESERVED]),
        (
            "the pool dropped it",
            [NOT_READY, RESERVED],
            [],
            {("gpu.example/reserved", "NoSchedule")},
            [NOT_READY],
        ),
        ("it is foreign", [NOT_READY, RESERVED], [], set(), [NOT_READY, RESERVED]),
        (
            "its value changed",
            [{"key": "a", "value": "1", "effect": "NoSchedule"}],
            [{"key": "a", "value": "2", "effect": "NoSchedule"}],
            set(),
            [{"key": "a", "value": "2", "effect": "NoSchedule"}],
        ),
        (
            "another effect is another taint",
            [{"key": "a", "effect": "NoExecute"}],
            [{"key": "a", "effect": "NoSchedule"}],
            {("a", "NoSchedule")},
            [{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoSchedule"}],
        ),
    ],
)
def test_foreign_taints_stay(
    why: str, present: list[Any], wanted: list[Any], before: set[tuple[str, str]], after: list[Any]
) -> None:
    assert merge_taints(present, wanted, before) == after, why


@pytest.mark.parametrize("said", ['[["ops/quarantine", "NoSchedule"]]', "{", "[" * 100_000])
def test_what_a_node_says_of_its_taints_takes_nothing_off(said: str) -> None:
    """A kubelet may annotate its own Node; an administrator's taint must outlive that."""
    quarantine = {"key": "ops/quarantine", "effect": "NoSchedule"}
    forged = node(prepared="older")
    forged["metadata"]["annotations"]["provisioner.dev/taints"] = said
    forged["spec"]["taints"] = [quarantine]
    plan = plan_node(server(), pool(), rack(), forged)
    assert isinstance(plan, PrepareNode)
    assert plan.taints == [quarantine, RESERVED, VERIFICATION]


def test_a_taint_of_the_verification_that_is_there_already_stays_as_it_is() -> None:
    """It has a value, and since when it stands there: whoever looks at it is not told that it is new."""
    standing = {**VERIFICATION, "value": "failed", "timeAdded": "2026-01-02T12:00:00Z"}
    found = node(prepared="older")
    found["spec"]["taints"] = [standing, NOT_READY]
    plan = plan_node(server(), pool(), rack(), found)
    assert isinstance(plan, PrepareNode)
    assert plan.taints == [standing, NOT_READY, RESERVED]
    found["spec"]["taints"] = [{**VERIFICATION, "effect": "NoSchedule"}]
    plan = plan_node(server(), pool(), rack(), found)
    assert isinstance(plan, PrepareNode)
    assert VERIFICATION in plan.taints, "of another effect it is another taint"


def recorded_node(**given: Any) -> dict[str, Any]:
    found = node(**given)
    found["metadata"]["uid"] = "b0000000-0000-4000-8000-00000000000b"
    return found


PREPARED = with_status(
    server(), node_uid="b0000000-0000-4000-8000-00000000000b", node_taints=("a:NoSchedule", "x.y/b:NoExecute")
)


def test_only_taints_on_record_for_this_very_node_are_taken_off() -> None:
    taints = [{"key": "a", "effect": "NoSchedule"}, {"key": "x.y/b", "effect": "NoExecute"}, NOT_READY]
    found = recorded_node(prepared="older")
    found["spec"]["taints"] = taints
    plan = plan_node(PREPARED, pool(), rack(), found)
    assert isinstance(plan, PrepareNode)
    assert plan.taints == [NOT_READY, RESERVED, VERIFICATION]
    assert plan.node_taints == ("gpu.example/reserved:NoSchedule",), "the taint of the verification is not the pool's"
    found["metadata"]["uid"] = "another Node of that name"
    plan = plan_node(PREPARED, pool(), rack(), found)
    assert isinstance(plan, PrepareNode)
    assert plan.taints == [*taints, RESERVED, VERIFICATION]


@pytest.mark.parametrize("uid", [None, "another"])
def test_a_node_that_was_prepared_stays_ours_whatever_it_says(uid: str | None) -> None:
    plan = plan_node(PREPARED, pool(), rack(), recorded_node(uid=uid, prepared="older"))
    assert isinstance(plan, PrepareNode)
    assert plan.annotations["provisioner.dev/server-uid"] == server().metadata.uid
    repair = plan_node(PREPARED, pool(), rack(), recorded_node(uid=uid))
    assert isinstance(repair, PrepareNode)
    assert repair.taints == [], "a taint that was taken off does not come back for that"


def taints_of(world: World) -> list[tuple[str, str]]:
    taints = world.admin.get(NODES, world.name)["spec"].get("taints") or []
    return [(taint["key"], taint["effect"]) for taint in taints]


def change_pool(world: World, **kubelet: Any) -> None:
    world.admin.patch(of(NodePool), world.name, {"spec": {"kubelet": to_json(kubelet)}})


def test_the_node_is_there_before_the_kubelet_with_everything_on_it(world: World) -> None:
    found = world.admin.get(NODES, world.name)
    assert (
        found["metadata"]["labels"].items() >= node_labels(world.server(), pool(world.name), rack(world.name)).items()
    )
    assert (
        found["metadata"]["annotations"].items()
        >= {
            "provisioner.dev/server-uid": world.server().metadata.uid,
            "provisioner.dev/prepared-order": "order-1",
        }.items()
    )
    assert {("gpu.example/reserved", "NoSchedule"), ("provisioner.dev/verification", "NoExecute")} <= {
        *taints_of(world)
    }
    condition = find_condition(world.server().status.conditions, "NodePrepared")
    assert condition is not None
    assert condition.status == "True"
    assert condition.message.endswith("for boot order order-1")
    assert world.server().status.node_uid == found["metadata"]["uid"]
    assert world.server().status.node_taints == ("gpu.example/reserved:NoSchedule",)


def test_what_admission_puts_on_a_new_node_stays(make_world: Callable[..., World]) -> None:
    """A new Node comes back with a taint that was not in what was sent, and is not written again."""
    world, created = make_world(), list[dict[str, Any]]()
    account = world.preparer.cluster

    class Watched:
        def __getattr__(self, name: str) -> Any:
            assert name != "patch", "nobody needs to write the Node once more"
            return getattr(account, name)

        def create(self, *arguments: Any, **named: Any) -> Any:
            created.append(account.create(*arguments, **named))
            return created[-1]

    world.preparer = replace(world.preparer, cluster=Watched())  # type: ignore[arg-type]
    world.order("order-1")
    (node_created,) = created
    assert sorted(node_created["spec"]["taints"], key=lambda taint: taint["key"]) == [
        RESERVED,
        NOT_READY,
        VERIFICATION,
    ]


def test_a_node_whose_maker_died_before_it_was_on_record_is_put_on_record(make_world: Callable[..., World]) -> None:
    world = make_world()

    by_account = world.preparer.cluster

    class Dies:
        def __getattr__(self, name: str) -> Any:
            return getattr(by_account, name)

        def apply_status(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    living, world.preparer = world.preparer, replace(world.preparer, cluster=Dies())  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        world.order("order-1")
    before = world.admin.get(NODES, world.name)["metadata"]
    assert world.server().status.node_uid is None

    world.preparer = living
    world.prepare_node()
    after = world.admin.get(NODES, world.name)["metadata"]
    assert (after["uid"], after["annotations"]) == (before["uid"], before["annotations"])
    assert world.server().status.node_uid == before["uid"]
    assert world.server().status.node_taints == ("gpu.example/reserved:NoSchedule",)
    condition = find_condition(world.server().status.conditions, "NodePrepared")
    assert condition is not None
    assert condition.status == "True"


def test_a_later_boot_takes_the_pools_labels_and_taints_and_leaves_foreign_ones(world: World) -> None:
    foreign = {"key": "example.org/broken-fan", "effect": "NoExecute"}
    taints = world.admin.get(NODES, world.name)["spec"]["taints"]
    blue = {"metadata": {"labels": {"team": "blue"}}, "spec": {"taints": [*taints, foreign]}}
    world.admin.patch(NODES, world.name, blue)
    change_pool(world, labels={"gpu.example/model": None, "gpu.example/links": "8"}, taints=[])
    again(lambda: world.preparer.reconcile(world.name))
    assert ("gpu.example/reserved", "NoSchedule") in taints_of(world), "not before the next boot"

    world.order("order-2")
    labels = world.admin.get(NODES, world.name)["metadata"]["labels"]
    assert labels["team"] == "blue"
    assert labels["gpu.example/links"] == "8"
    assert "gpu.example/model" not in labels
    assert ("gpu.example/reserved", "NoSchedule") not in taints_of(world)
    assert ("provisioner.dev/verification", "NoExecute") in taints_of(world), "whatever the pool says"
    assert ("example.org/broken-fan", "NoExecute") in taints_of(world)


def test_a_taint_that_was_taken_off_comes_back_with_the_next_boot_only(world: World) -> None:
    world.admin.patch(NODES, world.name, {"spec": {"taints": None}})
    again(lambda: world.preparer.reconcile(world.name))
    assert ("provisioner.dev/verification", "NoExecute") not in taints_of(world)
    world.order("order-2")
    assert ("provisioner.dev/verification", "NoExecute") in taints_of(world)


def test_a_foreign_node_is_reported_not_overwritten(make_world: Callable[..., World]) -> None:
    world = make_world()
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": world.name, "labels": {"team": "blue"}}}
    world.admin.create(NODES, body)
    world.order("order-1")
    found = world.admin.get(NODES, world.name)
    assert (
        "annotations" not in found["metadata"] or "provisioner.dev/server-uid" not in found["metadata"]["annotations"]
    )
    assert "provisioner.dev/pool" not in found["metadata"]["labels"]
    condition = find_condition(world.server().status.conditions, "NodePrepared")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "NodeNameTaken")
    assert "NodeNameTaken" in world.recorded.reasons()
    assert world.refused().reason == "NodeNameTaken"

    world.admin.delete(NODES, world.name)
    world.prepare_node()
    condition = find_condition(world.server().status.conditions, "NodePrepared")
    assert condition is not None
    assert condition.status == "True"


def test_a_node_that_the_api_server_refuses_is_told_on_the_server(make_world: Callable[..., World]) -> None:
    """The CRD refuses what would be refused here; a policy of the cluster may refuse more."""
    world = make_world()

    by_account = world.preparer.cluster

    class Policy:
        def __getattr__(self, name: str) -> Any:
            return getattr(by_account, name)

        def create(self, *_: Any, **__: Any) -> Any:
            raise RefusedByServer("admission webhook denied the Node", hint="ask its owner")

    world.preparer = replace(world.preparer, cluster=Policy())  # type: ignore[arg-type]
    with pytest.raises(RefusedByServer):
        world.order("order-1")
    condition = find_condition(world.server().status.conditions, "NodePrepared")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "NodeRefused")
    assert "admission webhook denied the Node" in condition.message


@pytest.mark.parametrize("acceptance", ["Pending", "Rejected"])
def test_a_server_that_nobody_has_accepted_gets_no_node(make_world: Callable[..., World], acceptance: str) -> None:
    world = make_world()
    world.change_spec(acceptance=acceptance)
    world.order("order-1")
    assert world.admin.find(NODES, world.name) is None
    world.change_spec(acceptance="Accepted")
    world.preparer.reconcile(world.name)
    assert world.admin.find(NODES, world.name) is not None


def test_a_pool_that_does_not_exist_is_waited_for(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.admin.delete(of(NodePool), world.name)
    world.order("order-1")
    condition = find_condition(world.server().status.conditions, "NodePrepared")
    assert condition is not None
    assert condition.reason == "Incomplete"
    assert world.preparer.reconcile(world.name) is not None


def test_a_rack_gives_its_failure_domain_once_it_is_there(make_world: Callable[..., World]) -> None:
    world = make_world()
    world.admin.patch(of(Rack), world.name, {"spec": {"failureDomain": "hall-b"}})
    world.order("order-1")
    labels = world.admin.get(NODES, world.name)["metadata"]["labels"]
    assert labels["topology.kubernetes.io/zone"] == "hall-b"


def test_a_taint_that_arrives_while_we_write_is_not_lost(world: World) -> None:
    class Interrupted:
        """Somebody taints the Node between our reading and our writing."""

        def __getattr__(self, name: str) -> Any:
            return getattr(world.preparer.cluster, name)

        def patch_seen(self, *arguments: Any, **named: Any) -> Any:
            present = world.admin.get(NODES, world.name)["spec"].get("taints") or []
            late = {"key": "late", "effect": "NoSchedule"}
            world.admin.patch(NODES, world.name, {"spec": {"taints": [*present, late]}})
            return world.preparer.cluster.patch_seen(*arguments, **named)

    interrupted = replace(world.preparer, cluster=Interrupted())  # type: ignore[arg-type]
    order = world.server().status.order
    assert order is not None
    world.apply_status("provisioner-boot-controller", {"order": to_json(replace(order, id="order-2"))})
    with pytest.raises(Conflict):
        interrupted.reconcile(world.name)
    world.prepare_node()
    ours = [taint for taint in taints_of(world) if not taint[0].startswith("node.kubernetes.io/")]
    assert ours == [
        ("provisioner.dev/verification", "NoExecute"),
        ("late", "NoSchedule"),
        ("gpu.example/reserved", "NoSchedule"),
    ]


def test_a_node_cannot_shake_off_a_quarantine_or_spoil_its_next_boot(world: World) -> None:
    """What a kubelet may do to its own Node, done between two boots."""
    quarantine = {"key": "ops/quarantine", "effect": "NoSchedule"}
    taints = world.admin.get(NODES, world.name)["spec"]["taints"]
    forged = {"provisioner.dev/taints": '[["ops/quarantine", "NoSchedule"]]', "provisioner.dev/server-uid": "other"}
    world.admin.patch(
        NODES, world.name, {"metadata": {"annotations": forged}, "spec": {"taints": [*taints, quarantine]}}
    )
    world.order("order-2")
    assert ("ops/quarantine", "NoSchedule") in taints_of(world)
    annotations = world.admin.get(NODES, world.name)["metadata"]["annotations"]
    assert annotations["provisioner.dev/server-uid"] == world.server().metadata.uid
    world.joined()


def test_a_failed_write_leaves_the_record_of_what_was_set(world: World) -> None:
    """A pool's taint is on record before it is on the Node, and the older one until it is off."""

    by_account = world.preparer.cluster

    class Dies:
        def __getattr__(self, name: str) -> Any:
            return getattr(by_account, name)

        def patch_seen(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    change_pool(world, labels={}, taints=[{"key": "new", "effect": "NoSchedule"}])
    order = world.server().status.order
    assert order is not None
    world.apply_status("provisioner-boot-controller", {"order": to_json(replace(order, id="order-2"))})
    with pytest.raises(KeyboardInterrupt):
        replace(world.preparer, cluster=Dies()).reconcile(world.name)  # type: ignore[arg-type]
    assert world.server().status.node_taints == ("gpu.example/reserved:NoSchedule", "new:NoSchedule")
    assert find_condition(world.server().status.conditions, "NodePrepared") is not None
    world.prepare_node()
    assert world.server().status.node_taints == ("new:NoSchedule",)
    assert ("gpu.example/reserved", "NoSchedule") not in taints_of(world)


def test_what_the_controllers_keep_of_a_node_still_says_whose_labels_it_has() -> None:
    fields = {"f:labels": {"f:ours": {}, "f:both": {}}, "f:annotations": {"f:theirs": {}}}
    whole: dict[str, Any] = {
        "metadata": {
            "name": "r01-u01",
            "managedFields": [
                {"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:metadata": fields}},
                {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {"f:both": {}}}}},
                {"manager": "kubelet", "subresource": "status", "fieldsV1": {"f:status": {"f:images": {}}}},
            ],
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "images": [{"names": ["a"], "sizeBytes": 1}]},
    }
    kept = trim_node(copy.deepcopy(whole))
    assert labels_set_before(kept) == labels_set_before(whole) == {"ours"}
    assert kept["status"] == {"conditions": [{"type": "Ready", "status": "True"}]}
    assert "f:status" not in json.dumps(kept)
