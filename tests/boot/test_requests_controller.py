"""A Maintenance's request against a real API server: answered once, on what is true now, and taken back."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from provisioner.api import Maintenance, Server
from provisioner.api.machinery.codec import encode, to_json
from provisioner.api.servers.server import BootOrder
from provisioner.boot.orders.controller import BootController, build_boot_controllers
from provisioner.cluster.resources import of
from tests.boot.fake_source import FakeSource
from tests.boot.objects import attempt, maintenance
from tests.boot.test_controller import BOOT, World, boot_to_ready, reason, wait_until, world

__all__ = ["world"]


@pytest.fixture
def drained(world: World) -> Iterator[World]:
    """A Ready server, and a Maintenance that asks for its boot by kexec."""
    boot_to_ready(world, world.controller)
    asked = asking(world)
    body = encode(asked)
    body.pop("status")
    body["metadata"] = {"name": asked.name}
    world.cluster.create(of(Maintenance), body)
    executor(world, phase="Draining")
    yield world
    world.cluster.delete(of(Maintenance), asked.name)


def asking(world: World) -> Maintenance:
    reboot = attempt("Kexec", image_ref=f"{world.name}-image")
    return maintenance(f"{world.name}-1", server=world.name, reboot=reboot)


def executor(world: World, **status: Any) -> None:
    """Write as the executor does, and wait until the boot controller's cache has it."""
    name = f"{world.name}-1"
    world.cluster.apply_status(Maintenance, name, status, manager="provisioner-maintenance")
    version = world.cluster.get(of(Maintenance), name)["metadata"]["resourceVersion"]
    caches = world.informers.maintenances
    wait_until(lambda: ((caches.get(name) or {}).get("metadata") or {}).get("resourceVersion") == version)


def ask(world: World, **changes: Any) -> None:
    executor(world, phase="Rebooting", reboot=to_json(asking(world).status.reboot), **changes)


def leading(world: World, **caches: Any) -> BootController:
    """A controller whose orders have other ids than the one that booted the server."""
    informers, rng = replace(world.informers, **caches), random.Random(f"{world.name} later")
    return BootController(world.door, informers, world.events, now=lambda: datetime.now(UTC), rng=rng)


def order_of(world: World) -> BootOrder:
    order = world.read().status.order
    assert order is not None
    return order


def test_a_request_is_answered_once_while_the_node_is_ready(drained: World) -> None:
    first = order_of(drained)
    drained.look(leading(drained))
    assert order_of(drained) == first, "it drains yet"
    ask(drained)
    order = drained.settle(leading(drained), lambda s: s.status.order != first).status.order
    assert order is not None
    assert (order.reason, order.method, order.attempt_id) == ("Requested", "Kexec", "try-1")
    assert (order.maintenance_ref, order.boot_id_before) == (f"{drained.name}-1", BOOT)

    def is_in_the_caches(_: Server) -> bool:
        cached = drained.informers.servers.get(drained.name)
        return cached is not None and cached["status"]["order"]["id"] == order.id

    for _ in range(3):
        drained.settle(leading(drained), is_in_the_caches)
    assert order_of(drained) == order


@pytest.mark.parametrize("now", [{"phase": "Cancelled"}, {"phase": "Waiting"}, None], ids=["over", "waits", "deleted"])
def test_what_the_caches_still_say_of_a_maintenance_orders_nothing(drained: World, now: dict[str, Any] | None) -> None:
    first = order_of(drained)
    stale = FakeSource(asking(drained))
    stale.subscribe = lambda watcher: watcher(f"{drained.name}-1", None, encode(asking(drained)))  # type: ignore[method-assign]
    executor(drained, **now) if now else drained.cluster.delete(of(Maintenance), f"{drained.name}-1")
    behind = leading(drained, maintenances=stale)
    drained.look(behind)
    assert order_of(drained) == first
    ask(drained) if now else None
    drained.look(behind)
    assert (order_of(drained) != first) is (now is not None), "the same caches, and now they are right"


def test_an_order_that_nobody_carried_out_is_taken_back_when_its_maintenance_has_ended(drained: World) -> None:
    first = order_of(drained)
    ask(drained)
    drained.settle(leading(drained), lambda s: s.status.order != first)
    executor(drained, phase="Failed", reboot=to_json(asking(drained).status.reboot))
    back = drained.settle(leading(drained), lambda s: s.status.order is not None and s.status.order.id == first.id)
    assert reason(back) == "Ready"
    assert drained.events.reasons()[-1] == "OrderRevoked"


def test_the_running_controller_reacts_to_a_request_and_to_its_end(drained: World) -> None:
    first = order_of(drained)
    stop = threading.Event()
    (controller,) = build_boot_controllers(
        drained.door, drained.informers, drained.events, lambda: datetime.now(UTC), random.Random(2)
    )
    thread = threading.Thread(target=controller.run, args=(stop,))
    thread.start()
    try:
        ask(drained)
        wait_until(lambda: order_of(drained).reason == "Requested")
        executor(drained, phase="Failed", reboot=to_json(asking(drained).status.reboot))
        wait_until(lambda: order_of(drained).id == first.id)
    finally:
        stop.set()
        thread.join(60)
