"""What goes while a Maintenance needs it: the executor against a real API server."""

from __future__ import annotations

from typing import Any

from provisioner.api import Image, Server
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.cluster.resources import NODES, of
from tests.boot import objects
from tests.maintenance.executor_steps import finish, go_to_reboot, told
from tests.maintenance.fake_jobs import job
from tests.maintenance.plane import Plane


def blockers(plane: Plane) -> list[tuple[str, str]]:
    return [(b.kind, b.name) for b in plane.status().blockers]


def publish(plane: Plane) -> None:
    body: dict[str, Any] = encode(objects.image(plane.image))
    body["metadata"].pop("uid", None)
    status = body.pop("status")
    plane.cluster.create(of(Image), body)
    plane.cluster.apply_status(Image, plane.image, status, manager="tests")


def test_an_image_that_is_deleted_in_mid_reboot_is_waited_for_in_use_and_then_booted(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.order()
    plane.cluster.delete(of(Image), plane.image)
    plane.work()
    assert (plane.phase(), plane.is_closed(), told(plane)) == ("Waiting", False, None)
    plane.work(seconds=3000)
    assert (plane.phase(), blockers(plane)) == ("Waiting", [("Image", plane.image)])
    publish(plane)
    plane.work(seconds=60)
    assert plane.phase() == "Rebooting"
    finish(plane)
    assert plane.phase() == "Completed"


def test_a_machine_that_is_down_when_its_image_is_deleted_is_waited_for(plane: Plane) -> None:
    go_to_reboot(plane)
    plane.order()
    plane.work()
    assert told(plane) == "Kexec"
    down = {"type": "Ready", "status": "False"}
    plane.set_condition(down)  # the agent ends the kubelet first
    plane.cluster.delete(of(Image), plane.image)
    for _ in range(3):
        plane.work(seconds=1000)
        assert (plane.phase(), blockers(plane)) == ("Rebooting", [("Image", plane.image)])
    publish(plane)
    plane.work()
    assert blockers(plane) == [("Server", plane.name)]
    plane.verify(plane.boot())
    plane.work()
    status = plane.status()
    assert (status.phase, [a.method for a in status.attempts]) == ("Completed", ["Kexec"])


def test_a_server_whose_node_was_deleted_is_rebooted_once_nothing_runs_there(plane: Plane) -> None:
    moment = rfc3339_micro(plane.now)
    order = {"id": "first", "reason": "FirstBoot", "orderedTime": moment, "attempt": 1}
    settled = {"order": order, "readyTime": moment}
    plane.cluster.apply_status(Server, plane.name, settled, manager="provisioner-boot-controller")
    plane.cluster.delete(NODES, plane.name)
    plane.jobs.jobs = [job()]
    plane.file(1, {"name": "user-alice", "action": "Reboot", "policy": "WhenIdle"})
    plane.work()
    assert (plane.phase(), blockers(plane)[0][0]) == ("Waiting", "Pod")
    plane.jobs.jobs = []
    plane.work(seconds=60)
    reboot = plane.status().reboot
    assert (plane.phase(), reboot.method if reboot else None) == ("Rebooting", "Reset")
