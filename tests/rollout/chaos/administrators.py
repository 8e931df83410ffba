"""What people do to a pool and its servers while a rollout goes on."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from provisioner.api import NodePool, Server
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.nodes.contract import HOLD_REQUESTED
from provisioner.cluster.resources import NODES, of
from tests.maintenance.chaos.world import World


def set_strategy(world: World, **changes: Any) -> None:
    """Fields of `spec.upgradeStrategy`, by their names in JSON."""
    patch = {"spec": {"upgradeStrategy": changes}}
    world.cluster.patch(of(NodePool), world.pool_name, patch, manager="kubectl")
    world.story.tell("admin", f"sets {changes}")


def retry(world: World) -> None:
    """`kubectl provision rollout resume`: what failed is tried again."""
    world.decisions += 1
    set_strategy(world, paused=False, retriedTime=rfc3339(world.clock.now))


def hold(world: World, name: str) -> None:
    _set_hold(world, name, "True")


def release(world: World, name: str) -> None:
    _set_hold(world, name, "False")


def _set_hold(world: World, name: str, status: str) -> None:
    if name not in world.nodes():
        return
    moment = rfc3339(world.clock.now)
    said = {"type": HOLD_REQUESTED, "status": status, "reason": "Person", "message": "", "lastTransitionTime": moment}
    patch = {"status": {"conditions": [said]}}
    world.accounts.person.strategic_patch(NODES, name, patch, subresource="status", manager="kubectl-provision")
    world.story.tell("admin", f"{'holds' if status == 'True' else 'releases'} {name}")


def exclude(world: World, name: str, *, excluded: bool = True) -> None:
    """Whether rollouts leave it out (`spec.upgrades`)."""
    patch = {"spec": {"upgrades": "Excluded" if excluded else "Follow"}}
    world.cluster.patch(of(Server), name, patch, manager="kubectl")
    world.story.tell("admin", f"{name} is {'excluded' if excluded else 'no longer excluded'}")


def is_left_alone(world: World, name: str) -> bool:
    """Whether somebody holds or excludes it now."""
    server, node = world.look(of(Server))().get(name), world.nodes().get(name)
    conditions = ((node or {}).get("status") or {}).get("conditions") or ()
    held = any(c["type"] == HOLD_REQUESTED and c["status"] == "True" for c in conditions)
    return held or ((server or {}).get("spec") or {}).get("upgrades") == "Excluded"


def runs_by_hand(world: World, name: str) -> bool:
    """Whether the Maintenance of its last boot was a person's, who named the image after the pool began to want another
    one, as far as the clocks of the leaders tell."""
    order = ((world.look(of(Server))().get(name) or {}).get("status") or {}).get("order") or {}
    named = order.get("maintenanceRef")
    known = (body for body in world.history.last.values() if body["metadata"]["name"] == named)
    asked = [each for body in known for each in body["spec"].get("requestors") or ()]
    early = world.most_skew + timedelta(seconds=3)
    if named is None or parse_time(order["orderedTime"]) < wanted_since(world) - early:
        return False
    running = world.machines[name].running_image
    return any(each["name"] != "rollout" and each.get("imageRef") == running for each in asked)


def power_fails(world: World, *names: str) -> None:
    """Nothing runs there, nothing answers, until `power_returns`."""
    for name in names:
        machine = world.machines[name]
        if machine.state != "Dead":
            machine.go_down(None)
            machine.keep("BMC is dead")
            world.story.tell(name, "is without power")


def power_returns(world: World, *names: str) -> None:
    """They start by themselves, into what the boot service serves them."""
    for name in names:
        machine = world.machines[name]
        machine.lasting.discard("BMC is dead")
        machine.since.pop("BMC is dead", None)
        if machine.state == "Off":
            machine.boot(world.hosts[name].firmware_image(), 300, "its power is back")


def cut_power(world: World, name: str) -> None:
    """For a moment."""
    if world.machines[name].state == "Running":
        power_fails(world, name)
        power_returns(world, name)


def spoil(world: World, image: str, *habits: Any) -> None:
    """From now on every boot of that image goes wrong so; of none, no more."""
    for machine in world.machines.values():
        machine.spoiled[world.images[image]] = set(habits)
    world.story.tell("images", f"{image}: {', '.join(habits) or 'sound again'}")


def wanted_image(world: World) -> str:
    return world.history.pool_images[-1][1]


def wanted_since(world: World) -> datetime:
    return world.history.pool_images[-1][0]
