"""What must hold: at every moment, when a job is ended, and when everything is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from provisioner.api import Server
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.contract import (
    BOOT_INTENT_ANNOTATION,
    MAINTENANCE_CONDITIONS,
    MAINTENANCE_TAINT,
    REQUEST_CONDITIONS,
    VERIFICATION_TAINT,
)
from provisioner.api.nodes.maintenance import DISTURBING_PHASES, FINAL_PHASES
from provisioner.cluster.resources import of
from tests.maintenance.chaos.history import phase_of

if TYPE_CHECKING:
    from tests.maintenance.chaos.fake_workloads import FakeJob
    from tests.maintenance.chaos.world import World

Object = dict[str, Any]


def check_always(world: World) -> None:
    """At most the budget is down, one Maintenance at a time disturbs a server, nobody's cordon was touched."""
    observe(world)
    disturbing = [m for m in world.maintenances() if phase_of(m) in DISTURBING_PHASES]
    servers = [m["spec"]["serverRef"] for m in disturbing]
    must = world.story.must
    must(len(servers) == len(set(servers)), f"two Maintenances disturb one server: {_names(disturbing)}")
    # Two processes that claim at one moment see each other, and stand back before they touch anything: a claim counts
    # from its taint on, which is looked at below. A Server that is gone holds no slot.
    there = world.look(of(Server))()
    down = [m for m in disturbing if phase_of(m) != "Claiming" and m["spec"]["serverRef"] in there]
    must(len(down) <= world.fleet.budget, f"more than {world.fleet.budget} disturbed: {_names(down)}")
    nodes = world.nodes()
    closes_early = world.uses_turns or world.fleet.rollout is not None
    if world.fleet.settings.get("cordon") != "WhenPlanned" and not closes_early:
        held = [name for name, node in nodes.items() if MAINTENANCE_TAINT in _taints(node)]
        must(len(held) <= world.fleet.budget, f"more than {world.fleet.budget} Nodes are tainted by us: {held}")
    for name in world.cordoned:
        node = nodes.get(name)
        if node is None:
            continue
        must(bool((node.get("spec") or {}).get("unschedulable")), f"the administrator's cordon of {name} was lifted")
        must("example.com/mine" in _taints(node), f"the administrator's taint on {name} was taken off")
    if not world.cordoned:
        for name, node in nodes.items():
            must(not (node.get("spec") or {}).get("unschedulable"), f"spec.unschedulable of {name} was written by us")
    check_claims_of_success(world)
    check_reservations(world)
    for name, reason in world.foreign_drains.items():
        found = world.workloads.drains.get(name)
        must(found == reason, f"the administrator's drain of {name} in Slurm became {found!r}")


def check_reservations(world: World) -> None:
    """What is reserved in Slurm is on record, so that whoever comes after a crash deletes it."""
    bodies = {body["metadata"]["name"]: body for body in world.maintenances()}
    for name, (node, _) in world.workloads.reservations.items():
        record = ((bodies.get(name) or {}).get("status") or {}).get("slurm") or {}
        on_record = record.get("node") == node and "reservedTime" in record
        world.story.must(on_record, f"{node} is reserved in Slurm for {name} without a record of it")


def observe(world: World) -> None:
    """Keep in the history what the Maintenances say, and which request to drain is fulfilled."""
    for body in world.maintenances():
        before = world.history.last.get(body["metadata"]["uid"])
        if before is None or before["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            fault = world.history.observe(body)
            world.story.must(fault is None, str(fault))
            check_turns(world, before, body)
        if phase_of(body) != "Drained":
            continue
        server = body["spec"]["serverRef"]
        node = world.nodes().get(server)
        if node is None or MAINTENANCE_TAINT not in _taints(node) or world.workloads.on(server):
            continue
        for asked in world.history.asked:
            if asked.action == "Drain" and asked.drained_at is None and body["metadata"]["uid"] in asked.carriers:
                asked.drained_at = world.clock.now


def check_turns(world: World, before: Object | None, body: Object) -> None:
    """Nothing is claimed for who waits for a turn, or booted into an Image that only such a one names."""
    was, status = (before or {}).get("status") or {}, body.get("status") or {}
    heard = [r for r in body["spec"].get("requestors") or () if r.get("turn") in (None, "Granted")]
    name = body["metadata"]["name"]
    if status.get("phase") == "Claiming" and was.get("phase") != "Claiming":
        world.story.must(bool(heard), f"{name} was claimed before anybody's turn")
    if status.get("reboot") and not was.get("reboot"):
        images = {r["imageRef"] for r in heard if r.get("imageRef")} | {i for _, i in world.history.pool_images}
        image = status["reboot"]["imageRef"]
        world.story.must(image in images, f"{name} boots {image}, which nobody wants whose turn has come")


def check_claims_of_success(world: World) -> None:
    """When it is called a success, the server has really been booted into the wanted image, and passed its checks."""
    for body in world.maintenances():
        name, status = body["metadata"]["name"], body.get("status") or {}
        said = [c for c in status.get("conditions") or () if c["type"] == "Succeeded" and c["status"] == "True"]
        machine = world.machines.get(body["spec"]["serverRef"])
        if name in world.seen_successes or not said or machine is None:
            continue
        world.seen_successes.add(name)
        if said[0]["reason"] != "Booted" or (machine.down_since is not None and not machine.is_unreachable()):
            continue  # nothing was booted, or it went down so lately that its Node is Ready still: nobody could know
        words, wanted = f"{name} is called a success, but its server", status["reboot"]["imageRef"]
        world.story.must(machine.boots > 0, f"{words} never booted")
        if any(entry["reason"] == "BootVerified" for entry in status["timeline"]):
            # Kept out of use afterwards: meanwhile it may have booted for reasons of its own.
            boot = next((b for b in machine.log if b.boot_id == status.get("bootIDAfter")), machine.log[-1])
            running, passed = boot.image, boot.passed_at is not None
        else:
            running, passed = machine.running_image, machine.verified_boot_id == machine.boot_id
            world.story.must(machine.state == "Running", f"{words} is {machine.state}")
            world.story.must(status.get("bootIDAfter") == machine.boot_id, f"{words} is in boot {machine.boot_id}")
        world.story.must(running == wanted, f"{words} runs {running}, not {wanted}")
        world.story.must(passed, f"{words} has not passed its checks")


def judge_interruption(world: World, job: FakeJob, why: str) -> None:
    """A job may be ended only where somebody asked for just that."""
    reasons = [
        _permits(world, body, job)
        for body in world.maintenances()
        if body["spec"]["serverRef"] in job.servers and phase_of(body) in DISTURBING_PHASES
    ]
    allowed = any(reason is None for reason in reasons)
    words = "; ".join(sorted({reason for reason in reasons if reason})) or "no Maintenance disturbs its servers"
    world.story.must(allowed, f"job {job.name} was interrupted ({why}) though it should not: {words}")


def _permits(world: World, body: Object, job: FakeJob) -> str | None:
    """Why this Maintenance does not permit that the job is ended; None if it does."""
    status = body.get("status") or {}
    requestors = body["spec"].get("requestors") or ()
    asked = [(r["policy"], r.get("deadlineTime")) for r in requestors if r.get("turn") in (None, "Granted")]
    asked.append((status.get("policy"), status.get("deadlineTime")))
    if any(policy == "Now" for policy, _ in asked):
        return None
    deadlines = [parse_time(time) for policy, time in asked if policy == "Deadline" and time]
    if not deadlines:
        return "its policy is WhenIdle"
    if job.do_not_disrupt:
        return "its owner forbids it"
    if min(deadlines) > world.clock.now + world.most_skew:
        return f"the deadline is {min(deadlines)}"
    return None if job.warned_for is not None else "it was not warned"


def check_end(world: World) -> None:
    """Everything of ours is lifted, every request is answered, every Maintenance ended for a reason."""
    must = world.story.must
    for body in world.maintenances():
        name, status = body["metadata"]["name"], body.get("status") or {}
        waits = [f"{b['kind']}: {b['message']}" for b in status.get("blockers") or ()]
        must(
            status.get("phase") in FINAL_PHASES,
            f"Maintenance {name} did not end: it is {status.get('phase')} and waits for {waits}",
        )
        said = [c for c in status.get("conditions") or () if c["type"] == "Succeeded"]
        must(bool(said) and bool(said[0]["reason"]) and bool(said[0]["message"]), f"{name} ended without a reason")
        must("finishedTime" in status, f"{name} ended at no time")
    for name, node in world.nodes().items():
        taints, annotations = _taints(node), node["metadata"].get("annotations") or {}
        must(MAINTENANCE_TAINT not in taints, f"Node {name} is still tainted by us")
        must(BOOT_INTENT_ANNOTATION not in annotations, f"Node {name} still carries a boot intent")
        checked = _is_verified(world, name, node)
        must(not checked or VERIFICATION_TAINT not in taints, f"Node {name} is verified, but still held out")
        for condition in (node.get("status") or {}).get("conditions") or ():
            if condition["type"] in (*REQUEST_CONDITIONS, *MAINTENANCE_CONDITIONS):
                must(condition["status"] != "True", f"condition {condition['type']} of Node {name} is still True")
    kept = {drain["node"]: drain["reason"] for m in world.maintenances() if (drain := m["status"].get("slurm"))}
    for name, reason in world.workloads.drains.items():
        if name in world.foreign_drains or name not in world.names:
            continue
        node = world.nodes().get(name)
        must(node is None or not _is_verified(world, name, node), f"{name} is verified, but drained in Slurm: {reason}")
        must(kept.get(name) == reason, f"{name} is drained in Slurm without a record of it: {reason}")
    for maintenance, (name, _) in world.workloads.reservations.items():
        node = world.nodes().get(name)
        words = f"{name} is verified, but reserved in Slurm for {maintenance}"
        must(name in world.names and node is not None and not _is_verified(world, name, node), words)


def _is_verified(world: World, name: str, node: Object) -> bool:
    """Whether jobs may come: the machine runs what its Node says, and its checks have passed."""
    machine = world.machines.get(name)
    boot_id = ((node.get("status") or {}).get("nodeInfo") or {}).get("bootID")
    runs = machine is not None and machine.state == "Running" and boot_id == machine.boot_id
    return runs and machine is not None and machine.verified_boot_id == boot_id


def check_boots(world: World, least: int, most: int) -> None:
    """No server boots more often than somebody had reason to, or less often than the record says."""
    for name, machine in world.machines.items():
        world.story.must(machine.boots >= least, f"{name} booted {machine.boots} times; {least} were needed")
        world.story.must(machine.boots <= most, f"{name} booted {machine.boots} times; {most} at most were needed")


def _taints(node: Object) -> set[str]:
    return {taint["key"] for taint in (node.get("spec") or {}).get("taints") or ()}


def _names(maintenances: list[Object]) -> str:
    return ", ".join(f"{m['metadata']['name']} ({phase_of(m)})" for m in maintenances)
