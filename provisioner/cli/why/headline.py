"""The first line of `why`: what a server is doing, in one sentence. Pure."""

from __future__ import annotations

from typing import Final

from provisioner.api.machinery.conditions import find_condition, is_true
from provisioner.api.machinery.meta import parse_time
from provisioner.api.machinery.wording import ago
from provisioner.api.nodes.contract import HOLD_REQUESTED
from provisioner.api.nodes.maintenance import Maintenance, MaintenancePhase
from provisioner.api.servers.server_status import is_given_up
from provisioner.cli.kubectl.node_requests import true_conditions
from provisioner.cli.why.subject import ServerSubject
from provisioner.rules.cause import Cause, find_cause

ACTION_WORDS: Final = {"Drain": "drained", "Reboot": "rebooted", "Reimage": "reimaged", "PowerCycle": "power cycled"}
METHOD_WORDS: Final = {
    "Kexec": "by kexec",
    "Reboot": "by its own system",
    "Reset": "by a reset of its BMC",
    "PowerCycle": "by a power cycle",
}
WAITS: Final = {
    "Hold": "until nobody holds it",
    "Image": "for its Image",
    "Maintenance": "for another Maintenance",
    "Rollout": "for its turn in the rollout",
    "Budget": "for a slot of its pool's budget",
    "Agent": "for its agent",
    "Slurm": "for Slurm's answer",
    "Node": "until its Node can be written",
    "Person": "for a person",
}
"""By the kind of a blocker that is no job."""
JOBS: Final = frozenset(("Pod", "PodGroup", "SlurmJob"))


def headline(subject: ServerSubject) -> str:
    """What follows the server's name."""
    if subject.no_leader is not None and subject.waits:
        return f"waits, and {subject.no_leader.words}: it {_state(subject)}"
    return _state(subject)


def _state(subject: ServerSubject) -> str:
    server = subject.server
    if server.spec.acceptance != "Accepted":
        state = "was rejected" if server.spec.acceptance == "Rejected" else "waits to be accepted"
        return f"{state}: it does not boot"
    if subject.current is not None:
        return _maintenance(subject, subject.current)
    if true_conditions(subject.node, (HOLD_REQUESTED,)):
        return "is held by a person: it takes no new jobs, and nothing disturbs it"
    cause = find_cause(server)
    if server.status.order is None and subject.node is None:
        return f"was never booted{_because(cause)}"
    if cause is not None and cause.type != "Verified":
        ready, stage = find_condition(server.status.conditions, "Ready"), server.status.boot_stage
        if ready is not None and cause.reason == stage:
            since = ago(parse_time(ready.last_transition_time), subject.now)
            return f"is booting: stage {stage}, not Ready since {since}"
        return f"is not Ready{_because(cause)}"
    if cause is not None:
        if cause.status == "Unknown":
            return "is being checked before use"
        return f"failed its checks before use, and is kept out of use{_because(cause)}"
    if server.status.lifecycle == "Verified":
        return "is Ready and verified, and something else keeps jobs away: see below"
    if is_true(server.status.conditions, "Ready"):
        asked = (
            "what its Node's conditions ask for waits to be taken up" if subject.is_asked else "nothing is asked of it"
        )
        return f"is in production; {asked}"
    return f"is {server.status.lifecycle or 'known, and nothing was done to it yet'}"


def _maintenance(subject: ServerSubject, m: Maintenance) -> str:
    phase: MaintenancePhase = m.status.phase or "Waiting"
    since = phase_since(m)
    lasted = f", since {ago(parse_time(since), subject.now)}" if since else ""
    action = m.status.action or (m.spec.requestors[0].action if m.spec.requestors else None)
    done = ACTION_WORDS[action] if action else "released: nobody asks for anything any more"
    image = f" into Image {m.status.image_ref}" if m.status.image_ref and action != "Drain" else ""
    told = {
        "Waiting": f"is to be {done}{image}, and waits{_waits(subject, m)}",
        "Claiming": f"is being claimed, to be {done}{image}",
        "Draining": f"is being drained, to be {done}{image}",
        "Drained": "is drained, until the request is withdrawn" if action == "Drain" else f"is drained, to be {done}",
        "Rebooting": f"boots anew{image} {_method(m)}" + ", once that is there" * lacks_image(m),
        "Verifying": f"has booted{image}, and {_verified(subject)}",
    }
    cause = find_cause(subject.server)
    hangs = phase == "Rebooting" and cause is not None and cause.is_deeper
    return told.get(phase, f"is in phase {phase}") + lasted + (_because(cause) if hangs else "")


def _verified(subject: ServerSubject) -> str:
    found, pool = subject.server.status.verification, subject.pool
    if (
        found is not None
        and pool is not None
        and found.boot_id == subject.server.status.boot_id
        and is_given_up(found, pool.spec.verification.attempts)
    ):
        return "failed its checks before use: a person must act"
    return "is verified before use"


def _policy(subject: ServerSubject, m: Maintenance) -> str:
    if m.status.policy == "Deadline" and m.status.deadline_time:
        deadline = parse_time(m.status.deadline_time)
        side = "in" if deadline > subject.now else "over since"
        told = ", of which its jobs were warned" if m.status.warned_time else ""
        when = f"{m.status.deadline_time}, {side} {ago(deadline, subject.now)}{told}"
        return f" until its jobs have ended, or the deadline ({when})"
    return " until no job runs" if m.status.policy == "WhenIdle" else ""


def _waits(subject: ServerSubject, m: Maintenance) -> str:
    """What for, in few words; the blockers have the rest."""
    kinds = [b.kind for b in m.status.blockers]
    other = next((WAITS[kind] for kind in kinds if kind in WAITS), None)
    return f" {other}" if other and not JOBS.intersection(kinds) else _policy(subject, m)


def lacks_image(m: Maintenance) -> bool:
    """Whether its Image is waited for."""
    return any(b.kind == "Image" for b in m.status.blockers)


def _method(m: Maintenance) -> str:
    return METHOD_WORDS[m.status.reboot.method] if m.status.reboot is not None else "soon"


def phase_since(m: Maintenance) -> str | None:
    """When the present phase began, by the record."""
    began = None
    for entry in reversed(m.status.timeline):
        if entry.phase != m.status.phase:
            break
        began = entry.time
    return began or m.status.started_time


def _because(cause: Cause | None) -> str:
    """What a person can do about it has a line of its own."""
    if cause is None:
        return ""
    return f" ({cause.reason}): {cause.observed}" if cause.message else f" ({cause.reason})"
