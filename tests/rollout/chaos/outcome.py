"""What must have come of a rollout once troubles are over and jobs have ended: it is complete, or stopped for a reason.

Servers run what is assigned to them, the status counts what is so, and nothing is left.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from provisioner.api import NodePool, Server
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import DISTURBING_PHASES
from provisioner.cluster.resources import of
from provisioner.rollout.standing import OUT_SECONDS
from tests.maintenance.chaos import invariants, liveness
from tests.maintenance.chaos.history import phase_of
from tests.maintenance.chaos.world import World
from tests.rollout.chaos.administrators import is_left_alone, runs_by_hand, wanted_image

SLACK: Final = timedelta(seconds=3)


def status_of(world: World) -> Any:
    return world.cluster.read(NodePool, world.pool_name).status


def is_complete(world: World) -> bool:
    """Whether the rollout says so, of the image that is wanted now."""
    said, wanted = status_of(world), wanted_image(world)
    if said.rollout is None or said.rollout.image_ref != wanted:
        return bool(said.rollout is None and said.released is not None and said.released.image_ref == wanted)
    return said.rollout.completed_time is not None and not any(w.reason == "Job" for w in said.rollout.waits)


def is_stopped(world: World) -> bool:
    """Whether it stopped itself, and what had begun by then is over.

    One that was complete stays so when a server fails that comes late: no other begins, and Degraded says so.
    """
    status = status_of(world)
    said, most = status.rollout, world.cluster.read(NodePool, world.pool_name).spec.upgrade_strategy.max_failures
    if said is None or said.image_ref != wanted_image(world):
        return False
    stopped = said.stopped is not None or (said.completed_time is not None and status.failed >= most)
    return stopped and not any(phase_of(body) in DISTURBING_PHASES for body in world.maintenances())


def check_stopped(world: World) -> None:
    """Who stopped itself for failures was right: so many servers really failed with the image."""
    image, most = wanted_image(world), world.cluster.read(NodePool, world.pool_name).spec.upgrade_strategy.max_failures
    failed = [name for name in world.names if _failed_with(world, name, image)]
    words = (
        f"it stopped for failures with {image}, but only {failed} failed with it: {status_of(world).rollout.stopped}"
    )
    world.story.must(len(failed) >= most, words)


def _failed_with(world: World, name: str, image: str) -> bool:
    """Whether it did not get into the image, did not come back, failed its checks, or was out of use for long."""
    machine = world.machines[name]
    ended = [body for body in world.history.last.values() if body["spec"]["serverRef"] == name]
    if any(is_true_failure(world, body, image) for body in ended):
        return True
    for boot, after in zip(machine.log, [*machine.log[1:], None], strict=True):
        if boot.image != image:
            continue
        if boot.joined_at is None or boot.failed_at is not None:
            return True
        if after is not None and boot.down_at is not None and _is_long(boot.down_at, after.joined_at, world):
            return True
        if boot.down_at is not None and after is None:
            return True
    silent = machine.silent_since()
    is_silent = silent is not None and machine.running_image == image
    return is_silent or any("kubelet" in habit for habit in machine.spoiled.get(image, ()))


def is_true_failure(world: World, body: dict[str, Any], image: str) -> bool:
    """Whether a Maintenance ended as failed with the image, for a cause that left its trace in what really happened."""
    boot = (body.get("status") or {}).get("reboot") or {}
    if phase_of(body) != "Failed" or boot.get("imageRef") != image:
        return False
    return liveness.find_doubt(world, body) is None


def _is_long(down: Any, up: Any, world: World) -> bool:
    return (up or world.clock.now) - down >= timedelta(seconds=OUT_SECONDS) - SLACK


def check_complete(world: World) -> None:
    """Every server that can have the image runs it, and all that is said of the pool is true."""
    must, image, said = world.story.must, wanted_image(world), status_of(world)
    must(is_complete(world), f"the rollout of {image} is not complete: {said.rollout}")
    found = world.look(of(Server))()
    servers = {name: decode_shared(Server, found[name]) for name in world.names if name in found}
    updated = left_alone = unavailable = 0
    for name, server in servers.items():
        machine, alone = world.machines[name], is_left_alone(world, name) or runs_by_hand(world, name)
        is_fit = machine.is_fit()
        must(is_fit or machine.state == "Dead", f"{name} is not in use: {machine.state}")
        must(alone or not is_fit or machine.running_image == image, f"{name} runs {machine.running_image}, not {image}")
        assigned = server.status.assigned_image_ref
        must(
            not is_fit or assigned == machine.running_image or runs_by_hand(world, name),
            f"{name} runs {machine.running_image}, assigned: {assigned}",
        )
        updated += is_fit and machine.running_image == image
        left_alone += is_fit and machine.running_image != image
        unavailable += not is_fit
    told = (said.desired, said.updated, said.updating, said.waiting, said.left_alone, said.failed, said.unavailable)
    true = (len(servers), updated, 0, 0, left_alone, said.failed if unavailable else 0, unavailable)
    names = "desired, updated, updating, waiting, left_alone, failed, unavailable"
    must(told == true, f"of the pool is said ({names}) {told}: {true}")
    must(said.released is not None and said.released.image_ref == image, f"released is {said.released}, not {image}")
    times = [record.ended_time for record in said.history]
    must(
        bool(world.most_skew) or times == sorted(times, key=parse_time, reverse=True),
        f"the history is out of order: {times}",
    )


def check_end(world: World) -> None:
    """Nothing is left, and what people asked for meanwhile came about."""
    invariants.check_end(world)
    liveness.check_asked(world, None)
    world.story.judge()
