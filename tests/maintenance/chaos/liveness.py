"""Nothing that was asked for is lost: it is done, or withdrawn, or the history holds what made it impossible.

A Maintenance that ended Failed needs a cause that the injection of its history can bring about (`Injection.permits`),
and whose trace is found in what machines, jobs and people really did.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import AGENT_METHODS
from provisioner.maintenance.phases.reboot_methods import ALL_METHODS
from provisioner.maintenance.requests.request import CONDITION_OF
from tests.maintenance.chaos.history import Asked, has_ended, phase_of, verdict_of

if TYPE_CHECKING:
    from tests.maintenance.chaos.fake_machine import FakeMachine
    from tests.maintenance.chaos.world import World

Object = dict[str, Any]
SLACK: Final = timedelta(seconds=1)
"""Conditions and requests carry whole seconds."""


def check_asked(world: World, permits: Collection[str] | None) -> None:
    """Everything that was asked for came about. `permits`: causes with which it may have failed; None: with any."""
    for asked in world.history.asked:
        fault = _fault(world, asked, permits) or _answer_missing(world, asked)
        world.story.must(fault is None, f"{asked}: {fault}")
    for body in world.history.last.values():
        _check_attempts(world, body)
    for machine in world.machines.values():
        taken = [boot.attempt for boot in machine.log if boot.attempt is not None and not boot.again]
        twice = {attempt for attempt in taken if taken.count(attempt) > 1}
        world.story.must(not twice, f"{machine.name} was rebooted more than once in one attempt: {twice}")


def check_drained(world: World) -> None:
    """Before people withdraw a request to drain: the server is out of use and empty, unless it could not be."""
    for asked in world.history.asked:
        if asked.action == "Drain" and asked.stands and not any(has_ended(b) for b in world.history.carriers(asked)):
            world.story.must(asked.drained_at is not None, f"{asked}: it was never out of use and empty")


def _fault(world: World, asked: Asked, permits: Collection[str] | None) -> str | None:
    """What is wrong with what became of a request; None if nothing is."""
    carriers = world.history.carriers(asked)
    begun = [b for b in carriers if (b.get("status") or {}).get("reboot")]
    if len(begun) > 1 and not world.history.may_be_two(asked, begun[0]):
        return f"it was done twice: {', '.join(b['metadata']['name'] for b in begun)}"
    if not asked.stands:
        return None
    if not carriers:
        lost = any(uid in world.history.maintenances_deleted for uid in asked.carriers)
        return None if lost else "no Maintenance has it: it was forgotten"
    body = carriers[-1]
    name, phase, verdict = body["metadata"]["name"], phase_of(body), verdict_of(body)
    if not has_ended(body):
        deleted = body["metadata"]["uid"] in world.history.maintenances_deleted
        return None if deleted else f"it was not answered: {name} is {phase}"
    cause, words = verdict["reason"], f"{name} ended as {phase} ({verdict['reason']}: {verdict['message']})"
    if phase == "Completed":
        if asked.action == "Drain":
            deleted = body["metadata"]["uid"] in world.history.maintenances_deleted
            return None if deleted else f"{words}, though nobody withdrew the drain"
        return (
            None if _proof(world, asked, parse_time(verdict["lastTransitionTime"])) else f"{words}, but {_lacks(asked)}"
        )
    if phase == "Cancelled":
        deleted = cause == "Deleted" and body["metadata"]["uid"] in world.history.maintenances_deleted
        return None if deleted else f"{words}, though nobody withdrew it"
    if permits is not None and cause not in permits:
        return f"{words}, which nothing in this history permits"
    doubt = find_doubt(world, body)
    return f"{words}, but {doubt}" if doubt else None


def _proof(world: World, asked: Asked, end: datetime) -> bool:
    """Whether a boot as asked for began after it was asked for, and passed its checks before it was called done.

    After a power cycle it may be a later boot, where somebody reset the machine once more before its checks.
    """
    named = {a.image for a in world.history.asked if a.server == asked.server and a.image}
    was_cold = False
    for boot in world.machines[asked.server].log:
        # An Image may come by a boot that was under way; whoever asks for more gets one that begins after that.
        # So may a reboot by one that nobody ordered (power came back): whoever asked saw what ran before it.
        unordered = asked.action == "Reboot" and boot.attempt is None
        first = boot.joined_at if asked.action == "Reimage" or unordered else boot.at
        is_up = boot.down_at is None or boot.down_at > asked.at
        if world.fleet.rollout is not None and asked.image == boot.image and first is not None and is_up:
            first = max(first, asked.at)  # the rollout has just brought what a person asks for
        if boot.joined_at is None or first is None or first < asked.at - SLACK:
            continue
        was_cold = was_cold or boot.cold
        if boot.passed_at is None:
            continue
        images = {asked.image} if asked.image else world.history.images_since(asked.at) | named
        if world.fleet.rollout is not None and not asked.image:
            images |= {image for _, image in world.history.pool_images}  # before its turn it boots what it had
        in_time = boot.passed_at <= end + SLACK + world.most_skew  # the end is dated by the leader's clock
        if boot.image in images and in_time and (asked.action != "PowerCycle" or was_cold):
            return True
    return False


def _lacks(asked: Asked) -> str:
    cold = "after a power cycle " if asked.action == "PowerCycle" else ""
    return f"no boot {cold}into {asked.image or 'its image'} passed its checks since"


def _answer_missing(world: World, asked: Asked) -> str | None:
    """A condition is answered on its Node by the Maintenance that had it."""
    later = [a for a in world.history.asked if (a.server, a.requestor) == (asked.server, asked.requestor)][-1]
    ended = [b for b in world.history.carriers(asked) if has_ended(b)]
    node = world.nodes().get(asked.server)
    if not (asked.is_condition and asked.stands and later is asked and ended and node is not None):
        return None
    type_, body = CONDITION_OF[asked.requestor], ended[-1]
    found = [c for c in (node.get("status") or {}).get("conditions") or () if c["type"] == type_]
    said = (found[0]["status"], found[0]["reason"]) if found else None
    if said != ("False", phase_of(body)) or f"Maintenance {body['metadata']['name']}:" not in found[0]["message"]:
        return f"the answer of {body['metadata']['name']} is not on the Node: {type_} is {said}"
    return None


def _check_attempts(world: World, body: Object) -> None:
    """The next attempt at a reboot is made only when the one before has failed."""
    status = body.get("status") or {}
    attempts = [*(status.get("attempts") or ()), status["reboot"]] if status.get("reboot") else []
    ids = list(dict.fromkeys(a["id"] for a in attempts))
    for attempt in attempts:
        over = attempt["id"] == ids[-1] or attempt.get("outcome") in ("TimedOut", "Failed", "WrongImage")
        words = f"{body['metadata']['name']} went on from {attempt['method']}, which ended {attempt.get('outcome')}"
        world.story.must(over, words)


def find_doubt(world: World, body: Object) -> str | None:
    """What is missing of the cause with which a Maintenance ended as failed; None if it is really so."""
    cause = verdict_of(body)["reason"]
    return _EVIDENCE[cause](world, body) if cause in _EVIDENCE else "this cause is not known"


# What a cause of failure leaves behind. Each says what is missing of it; None: it is really so.

Evidence = Callable[["World", Object], str | None]


def _decided(body: Object) -> datetime:
    """When its end was decided, at the latest."""
    return parse_time(verdict_of(body)["lastTransitionTime"]) + SLACK


def _server_gone(world: World, body: Object) -> str | None:
    server = body["spec"]["serverRef"]
    return None if server in world.history.servers_gone else f"Server {server} was there all the time"


def _node_gone(world: World, body: Object) -> str | None:
    since = parse_time(body["status"]["claimedTime"]) - SLACK
    deleted = [at for at, name in world.history.nodes_deleted if name == body["spec"]["serverRef"] and at >= since]
    return None if deleted else "its Node was not deleted since the claim"


def _held_up(world: World, body: Object) -> str | None:
    server, moment = body["spec"]["serverRef"], _decided(body)
    ran = world.workloads.ran(server, moment) or world.workloads.ran(server, moment - SLACK)
    return None if ran else "nothing ran there by then"


def _no_method(world: World, body: Object) -> str | None:
    status, machine = body["status"], world.machines[body["spec"]["serverRef"]]
    up = machine.ran(_decided(body)) and machine.ran(_decided(body) - SLACK)
    tried = {a["method"] for a in status.get("attempts") or ()}
    chosen = world.fleet.settings.get("reboot_methods") or ALL_METHODS
    for method in ("PowerCycle",) if status["action"] == "PowerCycle" else chosen:
        if method not in tried and (method not in AGENT_METHODS or up):
            return f"{method} was not tried"
    return None


def _every_method_failed(world: World, body: Object) -> str | None:
    status, machine = body["status"], world.machines[body["spec"]["serverRef"]]
    wrong = 0
    for attempt in status.get("attempts") or ():
        if attempt["outcome"] == "WrongImage":
            wrong += 1
            if not any(b.image != attempt["imageRef"] for b in machine.log if b.attempt == attempt["id"]):
                return f"{attempt['method']} did not boot a wrong image"
        elif not _image_gone(world, attempt) and (doubt := _timed_out(machine, attempt)) is not None:
            return doubt
    return None if wrong >= 2 else _no_method(world, body)


def _image_gone(world: World, attempt: Object) -> bool:
    """Whether no boot into its image could be ordered."""
    began, ended = parse_time(attempt["startedTime"]), parse_time(attempt["endedTime"])
    return world.history.was_image_gone(attempt["imageRef"], began, ended)


def _timed_out(machine: FakeMachine, attempt: Object) -> str | None:
    """Why nothing of a new boot need have been seen: it was tried and did not come back, or nobody could try."""
    ended = parse_time(attempt["endedTime"])
    tried = [boot for boot in machine.log if boot.attempt == attempt["id"]]
    if any(b.joined_at is not None and b.joined_at < ended - SLACK for b in tried):
        return f"{attempt['method']} brought it back in time"
    dumb = machine.was("agent is deaf" if attempt["method"] in AGENT_METHODS else "BMC is dead", ended)
    if tried or dumb or machine.died_at is not None or not machine.ran(ended):
        return None
    return f"{attempt['method']} was not even tried"


def _not_up(world: World, body: Object) -> str | None:
    machine = world.machines[body["spec"]["serverRef"]]
    return None if not machine.ran(_decided(body)) else "its machine was up"


def _not_passed(world: World, body: Object) -> str | None:
    machine = world.machines[body["spec"]["serverRef"]]
    boot = machine.boot_at(_decided(body))
    failed = boot is not None and boot.failed_at is not None
    return None if failed else "no check of the boot that ran had failed"


def _wrong_image(world: World, body: Object) -> str | None:
    machine, wanted = world.machines[body["spec"]["serverRef"]], body["status"]["reboot"]["imageRef"]
    boot = machine.boot_at(_decided(body))
    if boot is None or boot.image == wanted:
        return f"its machine ran {wanted}"
    return _every_method_failed(world, body)


_EVIDENCE: Final[dict[str, Evidence]] = {
    "ServerGone": _server_gone,
    "NodeGone": _node_gone,
    "NodeReplaced": _node_gone,
    "DrainTimedOut": _held_up,
    "NoRebootMethod": _no_method,
    "RebootFailed": _every_method_failed,
    "WrongImage": _wrong_image,
    "NodeNotReady": _not_up,
    "NotVerified": _not_passed,
}
