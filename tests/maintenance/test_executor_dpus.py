"""A card is booted anew in one window with the server in which it sits, on a real API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from provisioner.api import NodePool, Server
from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import REBOOT_REQUESTED
from provisioner.cluster.client import Cluster
from provisioner.jobs.model.work import Work
from tests.maintenance.fake_jobs import FakeJobs, job
from tests.maintenance.plane import Plane


@dataclass
class JobsOfOne(FakeJobs):
    """Jobs of one server alone."""

    server: str = ""

    def look(self, server: Server, pool: NodePool, *, fresh: bool = True) -> Work:
        return super().look(server, pool, fresh=fresh) if server.name == self.server else Work(free=1.0)


@pytest.fixture
def plane(cluster: Cluster, controller_account: Cluster, unique: str) -> Plane:
    made = Plane(cluster, controller_account, unique, servers=2, has_card=True, max_unavailable=2)
    made.jobs = JobsOfOne(server=made.name, jobs=[job()])
    made.executor = made.start()
    return made


def say_ready(plane: Plane, name: str, status: str) -> None:
    """What the boot controller says of a server."""
    ready = {"type": "Ready", "status": status, "reason": "Because", "lastTransitionTime": rfc3339(plane.now)}
    body: dict[str, Any] = {"conditions": [{**ready, "message": ""}]}
    order = plane.cluster.read(Server, name).status.order
    if order is not None:
        body["order"] = to_json(order)
    plane.cluster.apply_status(Server, name, body, manager="provisioner-boot-controller")


def both(plane: Plane) -> tuple[str | None, str | None]:
    """Phases of card and host, once there is nothing more to do about either."""
    host, card = plane.names
    for _ in range(3):
        plane.work(card)
        plane.work(host)
    return plane.phase(card), plane.phase(host)


def test_a_card_waits_for_the_jobs_of_its_host_and_the_host_for_the_card(plane: Plane) -> None:
    host, card = plane.names
    plane.ask(REBOOT_REQUESTED, name=card)
    assert both(plane) == ("Waiting", "Waiting")
    assert [(b.kind, b.name) for b in plane.status(card).blockers] == [("Server", host)]
    assert [b.kind for b in plane.status(host).blockers] == ["Pod"]
    assert not plane.is_closed(card)
    plane.jobs.jobs = []
    assert both(plane) == ("Rebooting", "Drained")
    plane.order(card)
    plane.work(card)
    boot_id = plane.boot(name=card)
    say_ready(plane, card, "False")
    plane.work(card)
    plane.verify(boot_id, card)
    assert both(plane) == ("Completed", "Drained"), "its network is not back"
    say_ready(plane, card, "True")
    assert both(plane) == ("Completed", "Completed")
    assert not plane.is_closed(host)
    assert not plane.is_closed(card)


def test_who_takes_the_request_back_gives_the_host_back(plane: Plane) -> None:
    _, card = plane.names
    plane.ask(REBOOT_REQUESTED, name=card)
    both(plane)
    plane.set_condition({"type": REBOOT_REQUESTED, "status": "False"}, name=card)
    plane.work(card)
    say_ready(plane, card, "True")
    assert both(plane) == ("Cancelled", "Cancelled")
