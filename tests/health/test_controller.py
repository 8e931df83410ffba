"""The health controller against a real API server: taints, conditions, Jobs, another boot in between."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.binaries.obtain import Binaries
from lab.control_plane.plane import ControlPlane
from provisioner.api import Maintenance, ObjectMeta, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.errors import Conflict, Forbidden, ProvisionerError, Retryable
from provisioner.api.nodes.contract import (
    HOLD_REQUESTED,
    HOLD_TAINT,
    VERIFICATION_RELEASE_REQUESTED,
    VERIFICATION_RETRY_REQUESTED,
    VERIFICATION_TAINT,
)
from provisioner.api.nodes.maintenance import MaintenanceSpec
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import JOBS, NODES, PODS, of
from provisioner.health.controller import build_health_controllers
from provisioner.health.job_runner import labelled_server
from provisioner.health.jobs.manifest import job_name
from tests.health.objects import BOOT, OTHER_BOOT, job_check
from tests.health.world import DEADLINE_SECONDS, FOREIGN_CONDITION, FOREIGN_TAINT, World, make_world
from tests.people import until
from tests.tools import missing

OURS = {"key": VERIFICATION_TAINT, "effect": "NoExecute"}


@pytest.fixture
def world(cluster: Cluster, controller_account: Cluster, unique: str) -> Iterator[World]:
    with make_world(cluster, controller_account, unique) as world:
        yield world


@pytest.fixture
def with_check(cluster: Cluster, controller_account: Cluster, unique: str) -> Iterator[World]:
    with make_world(cluster, controller_account, unique, job_check()) as world:
        yield world


def without_time(taints: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{key: value for key, value in taint.items() if key != "timeAdded"} for taint in taints]


def test_a_booted_node_is_verified_and_let_in_and_foreign_taints_stay(world: World) -> None:
    reconcile = world.controller()
    world.boot(ready=False)
    world.settle(reconcile, lambda: world.events.reasons("Server") != [])
    world.report(BOOT)
    world.settle(reconcile, lambda: VERIFICATION_TAINT not in {taint["key"] for taint in world.taints()})
    assert world.taints() == [FOREIGN_TAINT]
    assert world.verified() == ("True", "Passed")
    assert world.events.reasons("Server") == ["VerificationStarted", "VerificationPassed"]
    assert world.events.reasons("Node") == ["NodeAdmitted"]
    world.settle(reconcile, lambda: world.server().status.lifecycle == "InProduction")


def test_a_node_that_is_not_as_it_should_be_stays_out_until_a_retry_passes(world: World) -> None:
    reconcile = world.controller()
    world.boot(facts=world.facts(cpus=127))
    world.settle(reconcile, lambda: world.verified() == ("False", "Processors"))
    assert OURS in without_time(world.taints())
    world.report(BOOT)
    world.ask(VERIFICATION_RETRY_REQUESTED)
    world.settle(reconcile, lambda: world.condition(VERIFICATION_RETRY_REQUESTED) == [("False", "Passed")])
    world.settle(reconcile, lambda: world.taints() == [FOREIGN_TAINT])
    assert world.condition("ExampleProblem") == [("False", FOREIGN_CONDITION["reason"])]
    verification = world.server().status.verification
    assert verification is not None
    assert verification.attempt == 2


def test_a_release_lets_in_this_boot_and_the_next_one_is_checked_anew(world: World) -> None:
    reconcile = world.controller()
    world.boot(facts=world.facts(cpus=127))
    world.settle(reconcile, lambda: world.verified() == ("False", "Processors"))
    world.ask(VERIFICATION_RELEASE_REQUESTED, message="alice, for the demo")
    world.settle(reconcile, lambda: world.taints() == [FOREIGN_TAINT])
    world.settle(reconcile, lambda: world.condition(VERIFICATION_RELEASE_REQUESTED) == [("False", "Released")])
    assert "VerificationReleased" in world.events.reasons("Server")
    world.order("order-2")
    world.prepare("order-2")
    world.settle(reconcile, lambda: world.verified() == ("Unknown", "WaitsForBoot"))
    world.join("order-2", OTHER_BOOT)
    world.settle(reconcile, lambda: world.verified() == ("Unknown", "WaitsForNode"))
    world.report(OTHER_BOOT, facts=world.facts(cpus=127))
    world.settle(reconcile, lambda: world.verified() == ("False", "Processors"))
    assert OURS in without_time(world.taints())


def test_an_order_prepared_after_the_verification_keeps_its_taint(world: World) -> None:
    """The caches still show the old boot as verified and the new order's taint as its own."""
    reconcile = world.controller()
    world.boot()
    world.settle(reconcile, lambda: world.taints() == [FOREIGN_TAINT])
    world.order("order-2")
    world.prepare("order-2")
    for _ in range(5):
        try:
            reconcile(world.name)
        except Conflict:
            continue
    assert OURS in without_time(world.taints())


def test_an_order_prepared_between_the_look_and_the_write_keeps_its_taint(world: World) -> None:
    class Late:
        """The real door; when the taints are written, another order is given and prepared just before."""

        def __getattr__(self, name: str) -> Any:
            return getattr(world.door, name)

        def patch_seen(self, *args: Any, **kwargs: Any) -> Any:
            world.order("order-2")
            world.prepare("order-2")
            return world.door.patch_seen(*args, **kwargs)

    reconcile = world.controller(Late())
    world.boot()
    met: list[str] = []

    def until_it_meets_another_writer(name: str) -> float | None:
        try:
            return reconcile(name)
        except Conflict as error:
            met.append(str(error))
            return None

    world.settle(until_it_meets_another_writer, lambda: any(words.startswith("PATCH Node") for words in met))
    assert OURS in without_time(world.taints())
    world.settle(world.controller(), lambda: world.verified() == ("Unknown", "WaitsForBoot"))
    assert OURS in without_time(world.taints())


def test_a_hold_is_a_taint_while_it_is_asked_for(world: World) -> None:
    reconcile = world.controller()
    world.boot()
    world.settle(reconcile, lambda: world.taints() == [FOREIGN_TAINT])
    world.ask(HOLD_REQUESTED, message="bob looks at its fans")
    world.settle(reconcile, lambda: HOLD_TAINT in {taint["key"] for taint in world.taints()})
    world.settle(reconcile, lambda: world.server().status.lifecycle == "Held")
    world.ask(HOLD_REQUESTED, "False")
    world.settle(reconcile, lambda: world.taints() == [FOREIGN_TAINT])
    assert world.condition(HOLD_REQUESTED) == [("False", "Test")], "a hold is never answered"
    assert [r for r in world.events.reasons("Node") if r.startswith("NodeHold") or r == "NodeHeld"] == [
        "NodeHeld", "NodeHoldEnded"
    ]  # fmt: skip


def test_duplicate_requests_are_all_answered_and_foreign_conditions_stay(world: World) -> None:
    reconcile = world.controller()
    world.boot(facts=world.facts(cpus=127))
    world.settle(reconcile, lambda: world.verified() == ("False", "Processors"))
    conditions = world.node()["status"]["conditions"]
    asked = {"type": VERIFICATION_RETRY_REQUESTED, "status": "True"}
    patch = {"status": {"conditions": [*conditions, asked, {**asked, "reason": "Twice"}]}}
    world.cluster.patch(NODES, world.name, patch, subresource="status")
    world.settle(reconcile, lambda: world.condition(VERIFICATION_RETRY_REQUESTED) == [("False", "Failed")])
    assert world.condition("ExampleProblem") == [("False", FOREIGN_CONDITION["reason"])]
    assert world.condition("Ready") == [("True", "KubeletReady")]


def test_a_check_runs_on_the_node_as_a_job_and_its_words_decide(with_check: World) -> None:
    world, reconcile = with_check, with_check.controller()
    world.boot()
    world.settle(reconcile, lambda: len(world.jobs()) == 1 and world.verified() == ("Unknown", "Running"))
    (job,) = world.jobs()
    assert job["metadata"]["namespace"] == "provisioner-checks"
    failed = json.dumps({"result": "Failed", "reason": "SlowCopy", "message": "3 GB/s, expected 40"})
    world.finish_pod(job["metadata"]["name"], "provisioner-checks", code=0, message=failed)
    world.settle(reconcile, lambda: world.verified() == ("False", "GpuBurn"))
    verification = world.server().status.verification
    assert verification is not None
    (result,) = (each for each in verification.checks if each.name == "gpu-burn")
    assert (result.result, result.reason) == ("Failed", "SlowCopy")
    assert "3 GB/s, expected 40" in result.message
    assert OURS in without_time(world.taints())
    world.ask(VERIFICATION_RETRY_REQUESTED)
    world.settle(reconcile, lambda: len(world.jobs()) == 2)
    second = next(each for each in world.jobs() if each["metadata"]["uid"] != job["metadata"]["uid"])
    world.finish_pod(second["metadata"]["name"], "provisioner-checks", code=0)
    world.settle(reconcile, lambda: world.taints() == [FOREIGN_TAINT])


@pytest.fixture
def scheduler(binaries: Binaries, control_plane: ControlPlane, unique: str, tmp_path: Path) -> Iterator[str]:
    """A scheduler for the pods of this test alone, by its name."""
    if binaries.kube_scheduler is None:
        missing("a kube-scheduler beside the control plane's programs")
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(control_plane.kubeconfig)},
        "profiles": [{"schedulerName": unique}],
    }
    path = tmp_path / "scheduler.yaml"
    path.write_text(yaml.safe_dump(configuration))
    with (tmp_path / "scheduler.log").open("w") as log:
        command = [str(binaries.kube_scheduler), f"--config={path}", "--secure-port=0"]
        running = subprocess.Popen(command, stdout=log, stderr=log)
        yield unique
        running.kill()
        running.wait(60)


def test_the_pod_of_a_check_gets_to_its_node_under_our_taints_foreign_ones_and_a_cordon(
    cluster: Cluster, controller_account: Cluster, unique: str, scheduler: str
) -> None:
    check = job_check()
    check.template["spec"]["template"]["spec"]["schedulerName"] = scheduler
    with make_world(cluster, controller_account, unique, check) as world:
        room = {"pods": "10", "cpu": "4", "memory": "1Gi"}
        body = {"status": {"capacity": room, "allocatable": room}}
        cluster.strategic_patch(NODES, unique, body, subresource="status")
        world.boot()
        cluster.patch(NODES, unique, {"spec": {"unschedulable": True}})

        def placed() -> bool:
            selector = f"provisioner.dev/server={unique}"
            pods = cluster.list(PODS, namespace="provisioner-checks", label_selector=selector).items
            return [pod["spec"].get("nodeName") for pod in pods] == [unique]

        world.settle(world.controller(), placed)


def test_a_job_of_an_earlier_boot_is_taken_away_and_a_strangers_stays(with_check: World) -> None:
    world, reconcile = with_check, with_check.controller()
    world.boot()
    world.settle(reconcile, lambda: len(world.jobs()) == 1)
    (old,) = world.jobs()
    stranger = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{world.name}-own", "namespace": "provisioner-checks",
                     "labels": {"provisioner.dev/server": world.name, "provisioner.dev/check": "gpu-burn"}},
        "spec": {"suspend": True, "template": old["spec"]["template"] | {"metadata": {}}},
    }  # fmt: skip
    world.cluster.create(JOBS, stranger)
    world.boot("order-2", OTHER_BOOT)

    def names() -> set[str]:
        return {job["metadata"]["name"] for job in world.jobs()}

    world.settle(reconcile, lambda: old["metadata"]["name"] not in names() and len(names()) == 2)
    assert f"{world.name}-own" in names()


def labelled(world: World, namespace: str) -> dict[str, Any]:
    """A suspended Job as that of an earlier round of a check: anybody can compute its name."""
    (ours,) = world.jobs()
    spec = ours["spec"]["template"]["spec"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": job_name("gpu-burn", world.name, "old", 1),
            "namespace": namespace,
            "labels": {"provisioner.dev/server": world.name, "provisioner.dev/check": "gpu-burn"},
            "annotations": {"provisioner.dev/boot-id": "old", "provisioner.dev/attempt": "1"},
        },
        "spec": {"suspend": True, "template": {"metadata": {}, "spec": spec}},
    }


def caches_show(world: World, jobs: int) -> bool:
    return sum(labelled_server(each) == (world.name,) for each in world.informers.jobs.items()) == jobs


class NoDeletes:
    """The real door, at which nothing is deleted."""

    def __init__(self, cluster: Cluster, error: ProvisionerError) -> None:
        self._cluster, self._error, self.tried = cluster, error, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def delete(self, *_: Any, **__: Any) -> bool:
        self.tried += 1
        raise self._error


def test_a_job_that_somebody_labelled_in_a_namespace_of_no_check_is_left_alone(with_check: World) -> None:
    world = with_check
    door = NoDeletes(world.door, Forbidden("jobs is forbidden", hint="grant it"))
    reconcile = world.controller(door)
    world.boot()
    world.settle(reconcile, lambda: len(world.jobs()) == 1)
    (ours,) = world.jobs()
    world.cluster.create(JOBS, labelled(world, "default"))
    until(lambda: caches_show(world, 2))
    world.finish_pod(ours["metadata"]["name"], ours["metadata"]["namespace"], code=0)
    world.settle(reconcile, lambda: world.taints() == [FOREIGN_TAINT])
    assert door.tried == 0


@pytest.mark.parametrize(
    "error",
    [Forbidden("jobs is forbidden", hint="grant it"), Retryable("the API server is busy")],
    ids=["forbidden", "not now"],
)
def test_a_job_that_cannot_be_deleted_keeps_no_node_out_of_use(with_check: World, error: ProvisionerError) -> None:
    world = with_check
    door = NoDeletes(world.door, error)
    reconcile = world.controller(door)
    world.boot()
    world.settle(reconcile, lambda: len(world.jobs()) == 1)
    (ours,) = world.jobs()
    world.cluster.create(JOBS, labelled(world, "provisioner-checks"))
    until(lambda: caches_show(world, 2))
    world.finish_pod(ours["metadata"]["name"], ours["metadata"]["namespace"], code=0)
    world.settle(reconcile, lambda: world.taints() == [FOREIGN_TAINT])
    assert door.tried > 0


def test_a_check_that_the_api_server_refuses_fails_in_its_words(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    bad = job_check(template={"spec": {"template": {"spec": {"containers": []}}}})
    with make_world(cluster, controller_account, unique, bad) as world:
        reconcile = world.controller()
        world.boot()
        world.settle(reconcile, lambda: world.verified() == ("False", "GpuBurn"))
        (message,) = (c.message for c in world.server().status.conditions if c.type == "Verified")
        assert "containers" in message
        assert "correct the check's template" in message


def test_a_check_in_a_namespace_that_is_not_there_or_not_the_controllers_says_so(
    cluster: Cluster, controller_account: Cluster, unique: str
) -> None:
    """The API server answers both alike to who has no right there."""
    with make_world(cluster, controller_account, unique, job_check(namespace=f"{unique}-none")) as world:
        reconcile = world.controller()
        world.boot()
        world.settle(reconcile, lambda: world.verified() == ("False", "GpuBurn"))
        verification = world.server().status.verification
        assert verification is not None
        (refused,) = (each for each in verification.checks if each.reason == "JobForbidden")
        assert refused.message is not None
        assert f"namespace '{unique}-none' does not exist, or the controller may not make Jobs in it" in refused.message


def test_it_follows_its_caches_by_itself_from_a_boot_to_production_and_into_a_maintenance(with_check: World) -> None:
    """With the queue and the threads of a real process: nobody calls reconcile."""
    world, stop = with_check, threading.Event()
    controller, _ = build_health_controllers(world.door, world.informers, world.events)
    thread = threading.Thread(target=controller.run, args=(stop,))
    thread.start()

    def wait_for(until: Any) -> None:
        world.settle(lambda name: None, until)

    try:
        world.boot(ready=False)
        wait_for(lambda: world.verified() == ("Unknown", "Running"))
        world.report(BOOT)
        # A clock is measured by a renewal that is seen, and is not believed by one that is seen late.
        wait_for(lambda: (world.renew_lease(), len(world.jobs()) == 1)[1])
        world.finish_pod(world.jobs()[0]["metadata"]["name"], "provisioner-checks", code=0)
        wait_for(lambda: world.server().status.lifecycle == "InProduction")
        assert world.taints() == [FOREIGN_TAINT]
        name = f"{world.name}-1"
        spec = MaintenanceSpec(server_ref=world.name)
        body = encode(Maintenance(metadata=ObjectMeta(name=name), spec=spec))
        body["metadata"] = {"name": name}
        world.cluster.create(of(Maintenance), body)
        world.cluster.apply_status(Maintenance, name, {"phase": "Draining"}, manager="provisioner-maintenance")
        wait_for(lambda: world.server().status.lifecycle == "Maintenance")
        world.cluster.apply_status(Maintenance, name, {"phase": "Completed"}, manager="provisioner-maintenance")
        wait_for(lambda: world.server().status.lifecycle == "InProduction")
        world.cluster.delete(of(Maintenance), name)
        world.cluster.delete(of(Server), world.name)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while jobs := world.jobs():
            assert time.monotonic() < deadline, jobs
            time.sleep(0.1)
    finally:
        stop.set()
        thread.join(DEADLINE_SECONDS)
