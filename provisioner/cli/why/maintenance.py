"""What `why` tells of the Maintenance that holds a server. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from provisioner.api import Server
from provisioner.api.machinery.meta import parse_time
from provisioner.api.machinery.wording import ago
from provisioner.api.nodes.contract import HOLD_REQUESTED
from provisioner.api.nodes.maintenance import Blocker, Maintenance, RebootAttempt, Requestor, RequestTurn
from provisioner.cli.kubectl.node_requests import true_conditions
from provisioner.cli.why.headline import METHOD_WORDS, lacks_image
from provisioner.cli.why.subject import ServerSubject
from provisioner.rules.cause import find_cause

SHOWN_BLOCKERS: Final = 8
SHOWN_RECORD: Final = 8
TURNS: Final[dict[RequestTurn | None, str]] = {
    None: "",
    "Granted": ", and has its turn",
    "Waits": ", and waits for its turn",
    "Steered": ", and waits for its turn, with new jobs steered away",
    "Closed": ", and waits for its turn, with no new job taken",
}
"""Whether it is carried out, and what is done for it before."""


def reasons(subject: ServerSubject) -> Iterable[str]:
    """Who asked for what, when, in which words."""
    if subject.current is None:
        return []
    return [_asked(subject, r) for r in subject.current.spec.requestors]


def _asked(subject: ServerSubject, r: Requestor) -> str:
    who = r.user or ("a Node condition (the audit log has who)" if r.name.startswith("condition-") else r.name)
    policy = {"WhenIdle": "when idle", "Now": "now", "Deadline": f"by {r.deadline_time}"}[r.policy]
    image = f" to Image {r.image_ref}" if r.image_ref else ""
    when = f", {ago(parse_time(r.requested_time), subject.now)} ago" if r.requested_time else ""
    words = f': "{r.message}"' if r.message else ""
    return f"{who} asked for {r.action}{image}, {policy}{TURNS[r.turn]}{when} ({r.name}){words}"


def waits_for(subject: ServerSubject) -> Iterable[str]:
    """The blockers, the oldest first."""
    if subject.current is None:
        return []
    blockers = sorted(subject.current.status.blockers, key=lambda b: b.since_time)
    shown = [f"{blocker_words(b)} (since {ago(parse_time(b.since_time), subject.now)})" for b in blockers]
    more = len(shown) - SHOWN_BLOCKERS
    return [*shown[:SHOWN_BLOCKERS], f"and {more} more"] if more > 0 else shown


def blocker_words(b: Blocker) -> str:
    """What it is and why it is waited for; its name once, where the message begins with it."""
    if b.kind == "Rollout":
        return b.message
    kind, name = b.kind.lower(), b.name.lower()
    return b.message if b.message.lower().startswith(f"{kind} {name}") else f"{b.kind} {b.name}: {b.message}"


def next_step(subject: ServerSubject) -> Iterable[str]:
    """What the executor will do next, in its own words."""
    if subject.current is None and true_conditions(subject.node, (HOLD_REQUESTED,)):
        return [f"whoever is done with it: kubectl provision release {subject.server.name}"]
    if subject.current is None or subject.current.status.next_step is None:
        return []
    return [subject.current.status.next_step]


def attempts(subject: ServerSubject) -> Iterable[str]:
    """Every attempt at a reboot method, with its outcome."""
    m = subject.current
    if m is None:
        return []
    found = list(m.status.attempts)
    if m.status.reboot is not None and all(a.id != m.status.reboot.id for a in found):
        found.append(m.status.reboot)
    return [_attempt(subject, a) for a in found]


def _attempt(subject: ServerSubject, a: RebootAttempt) -> str:
    began = parse_time(a.started_time)
    path = METHOD_WORDS[a.method]
    if a.outcome is None:
        until = ago(parse_time(a.deadline_time), subject.now)
        side = "the next method is tried in" if parse_time(a.deadline_time) > subject.now else "its time is over since"
        waits = subject.current is not None and lacks_image(subject.current)
        side = "its Image is waited for, however long" if waits else f"{side} {until}"
        return f"{path}: under way since {ago(began, subject.now)}; {side}"
    seconds = f" after {ago(began, parse_time(a.ended_time))}" if a.ended_time else ""
    words = f": {a.message}" if a.message else ""
    return f"{path}: {a.outcome}{seconds}{words}"


def record(subject: ServerSubject) -> Iterable[str]:
    """The last entries of the timeline."""
    if subject.current is None:
        return []
    timeline = subject.current.status.timeline
    shown = [f"{e.time[:10]} {e.time[11:19]}  {e.reason}: {e.message}" for e in timeline[-SHOWN_RECORD:]]
    more = len(timeline) - len(shown)
    name = subject.current.name
    return [*shown, f"({more} earlier: kubectl get maintenance {name} -o yaml)"] if more > 0 else shown


def waiting_behind(subject: ServerSubject) -> Iterable[str]:
    """Maintenances of the same server that come after this one."""
    return [
        f"Maintenance {m.name}: " + ", ".join(f"{r.action} for {r.user or r.name}" for r in m.spec.requestors)
        for m in subject.behind
    ]


def wait_words(server: Server, current: Maintenance | None) -> str:
    """What somebody has to know: what the Maintenance waits for, else the cause for which the node takes no jobs."""
    if current is not None and current.status.blockers:
        first = current.status.blockers[0]
        more = f" (+{len(current.status.blockers) - 1})" if len(current.status.blockers) > 1 else ""
        return f"{blocker_words(first)}{more}"
    cause = find_cause(server)
    if cause is None or (current is not None and not cause.is_deeper):
        return ""
    return cause.words
