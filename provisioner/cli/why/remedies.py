"""What a person can do about a server now: the commands for the state that it is in. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.nodes.maintenance import Maintenance, MaintenanceAction
from provisioner.cli.why.headline import JOBS
from provisioner.cli.why.subject import ServerSubject
from provisioner.rollout.standing import REQUESTOR
from provisioner.rules.cause import find_cause

COMMANDS: Final[dict[MaintenanceAction, str]] = {
    "Drain": "drain",
    "Reboot": "reboot",
    "Reimage": "reimage",
    "PowerCycle": "power-cycle",
}


def remedies(subject: ServerSubject) -> Iterable[str]:
    """Each way out as a command; nothing where nothing is to be done."""
    told = _remedies(subject)
    return [subject.no_leader.remedy, *told] if subject.no_leader is not None and subject.waits else told


def _remedies(subject: ServerSubject) -> list[str]:
    name, m = subject.server.name, subject.current
    if subject.server.spec.acceptance == "Pending":
        return [f"let it boot: kubectl provision accept {name}"]
    cause = find_cause(subject.server)
    if cause is not None and cause.remedy and (m is None or (cause.is_deeper and m.status.phase == "Rebooting")):
        return [cause.remedy]
    if m is not None:
        if all(requestor.name == REQUESTOR for requestor in m.spec.requestors) and m.spec.requestors:
            return _of_rollout(subject, m)
        return _of_maintenance(name, m)
    last = subject.last
    ready = find_condition(subject.server.status.conditions, "Ready")
    if last is not None and last.status.phase == "Failed" and ready is not None and ready.status != "True":
        return [f"read what was tried: kubectl get maintenance {last.name} -o yaml; {_again(name, last)}"]
    return []


def _of_rollout(subject: ServerSubject, m: Maintenance) -> list[str]:
    """A rollout's request is nobody's to withdraw: whoever wants the server left alone says so."""
    if m.status.reboot is not None:
        return []
    pool = next((r.node_pool_ref for r in m.spec.requestors if r.node_pool_ref), subject.server.spec.node_pool_ref)
    return [
        f"have it left alone for now: kubectl provision hold {subject.server.name}; or hold up the rollout: "
        f"kubectl provision rollout pause {pool}"
    ]


def _of_maintenance(name: str, m: Maintenance) -> list[str]:
    action, phase = m.status.action, m.status.phase or "Waiting"
    if action is None or m.status.reboot is not None:
        return []
    if m.status.blockers and all(b.kind == "Rollout" for b in m.status.blockers):
        return []  # whoever gives turns goes on by itself, or says what it waits for
    if action == "Drain" and phase == "Drained":
        return [f"give it back: kubectl provision release {name}"]
    withdraw = f"take your request back: kubectl provision cancel {name}"
    waits_for_jobs = phase == "Waiting" and any(b.kind in JOBS for b in m.status.blockers)
    ask = f"kubectl provision {COMMANDS[action]} {name}"
    if waits_for_jobs and m.status.policy == "WhenIdle":
        return [f"wait; or set its jobs a term: {ask} --deadline 4h; or {withdraw}"]
    if waits_for_jobs and m.status.policy == "Deadline":
        return [f"wait; or, as an administrator, end its jobs: {ask} --now; or {withdraw}"]
    return [withdraw]


def _again(name: str, last: Maintenance) -> str:
    if last.status.action == "PowerCycle":
        return "look at its console"
    return f"or have its power cut: kubectl provision power-cycle {name}"
