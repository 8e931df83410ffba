"""What `why` tells of a server and its Node beside the Maintenance. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from provisioner.api.machinery.codec import read_annotation
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import parse_time
from provisioner.api.machinery.wording import ago, clip, quantity
from provisioner.api.nodes.contract import (
    HOLD_TAINT,
    MAINTENANCE_TAINT,
    NODE_FACTS_ANNOTATION,
    REQUEST_CONDITIONS,
    REQUEST_REFUSED,
    VERIFICATION_TAINT,
)
from provisioner.api.nodes.facts import NodeFacts
from provisioner.api.servers.boot_timeline import boot_timeline, format_timeline
from provisioner.cli.why.subject import ServerSubject
from provisioner.cluster.recent_events import event_time, message_of
from provisioner.cluster.source import conditions_of
from provisioner.health.faults.catalogue import meaning_of
from provisioner.rules.assigned_image import next_image, ordered_image
from provisioner.rules.nodes import NodeView
from provisioner.rules.requests import merge

SHOWN_EVENTS: Final = 6
SHOWN_FAULTS: Final = 4
UNNOTED_SECONDS: Final = 30.0
"""After so long a certificate that was approved is on record, if anybody is there to note it."""
OUR_TAINTS: Final = (MAINTENANCE_TAINT, VERIFICATION_TAINT, HOLD_TAINT)


def pending_requests(subject: ServerSubject) -> Iterable[str]:
    """Request conditions that are True, and what was refused."""
    lines = []
    for c in conditions_of(subject.node):
        if c.get("status") != "True":
            continue
        if c["type"] in REQUEST_CONDITIONS:
            since = f", since {ago(parse_time(c['lastTransitionTime']), subject.now)}" if _time(c) else ""
            words = f': "{c["message"]}"' if c.get("message") else ""
            lines.append(f"condition {c['type']} ({c.get('reason') or 'no reason'}){since}{words}")
        elif c["type"] == REQUEST_REFUSED:
            lines.append(f"refused: {c.get('message') or c.get('reason')}")
    return lines


def _time(condition: Mapping[str, Any]) -> bool:
    try:
        return parse_time(condition["lastTransitionTime"]).tzinfo is not None
    except (AttributeError, KeyError, TypeError, ValueError):
        return False


def node_notes(subject: ServerSubject) -> Iterable[str]:
    """What keeps jobs away from the Node, and whose that is."""
    if subject.node is None:
        return ["there is no Node of that name"] if subject.server.status.order is not None else []
    node = NodeView(subject.node)
    ready = node.condition("Ready")
    lines = []
    if ready is not None and not ready.is_true:
        lines.append(f"the Node is not Ready ({ready.reason}): {ready.message}")
    if node.unschedulable:
        lines.append("cordoned by somebody; the provisioner neither does nor undoes that: kubectl uncordon")
    for taint in node.taints:
        key = f"{taint['key']}{'=' + taint['value'] if taint.get('value') else ''}:{taint['effect']}"
        if taint["key"] in OUR_TAINTS:
            lines.append(f"taint {key}, the provisioner's own")
        elif not taint["key"].startswith("node.kubernetes.io/"):
            lines.append(f"taint {key}, not one of a disturbance")
    return [*lines, *_credentials(subject), *_alignment(subject)]


def _credentials(subject: ServerSubject) -> Iterable[str]:
    """That the kubelet's certificate does not count, so that all that it writes is refused. docs/credentials.md"""
    join = subject.server.status.join
    if join is None or join.certificate_token_id is None or join.certificate_time is None:
        return []
    if subject.server.spec.acceptance == "Rejected":
        return [f"it is Rejected, so its certificate writes nothing: kubectl provision accept {subject.server.name}"]
    approved = parse_time(join.certificate_time)
    if join.credentials or (subject.now - approved).total_seconds() < UNNOTED_SECONDS:
        return []
    return [
        f"the certificate that was approved {ago(approved, subject.now)} ago is not on record, so it writes nothing: "
        "does somebody lead group approver? Without its request it is booted anew"
    ]


def _alignment(subject: ServerSubject) -> Iterable[str]:
    """That the machine could not do what its pool asks for; in its own words, which decide nothing."""
    annotations = ((subject.node or {}).get("metadata") or {}).get("annotations") or {}
    facts = read_annotation(NodeFacts, annotations.get(NODE_FACTS_ANNOTATION))
    if subject.pool is None or subject.pool.spec.kubelet.numa_alignment is None or facts is None:
        return []
    words = facts.numa_alignment or "not aligned to NUMA nodes: its image knows nothing of that, or it booted before"
    return [] if words.startswith("aligned ") else [f"its pool asks for numaAlignment, and it is {clip(words, 300)}"]


def boot(subject: ServerSubject) -> Iterable[str]:
    """What it runs, how it came there, and its power."""
    s = subject.server.status
    lines = []
    ready = find_condition(s.conditions, "Ready")
    if ready is not None and ready.status != "True":
        lines.append(f"{ready.reason}: {ready.message}")
    if s.image_ref is not None:
        digest = f" ({s.image_digest[:19]}…)" if s.image_digest else ""
        lines.append(f"runs Image {s.image_ref}{digest}" + (f", boot {s.boot_id}" if s.boot_id else ""))
    lines += _next_image(subject)
    if s.order is not None:
        ordered = ago(parse_time(s.order.ordered_time), subject.now)
        words = f"; reason then: {s.order.message}" if s.order.message else ""
        lines.append(f"last boot ordered {ordered} ago ({s.order.reason}, attempt {s.order.attempt}){words}")
        phases = format_timeline(boot_timeline(s), subject.now)
        if phases:
            lines.append(phases)
    powered = find_condition(s.conditions, "PoweredOn")
    if s.power is not None and s.power.state is not None:
        lines.append(f"power {s.power.state}" + _unwell(powered))
    elif powered is not None and powered.status != "True":
        lines.append(f"power unknown{_unwell(powered)}")
    return lines


def _next_image(subject: ServerSubject) -> Iterable[str]:
    """Which Image the next boot brings, where that is another one than runs."""
    running, current = subject.server.status.image_ref, subject.current
    assigned = next_image(subject.server, subject.pool).name
    ordered = ordered_image(subject.server, subject.pool, subject.image).name
    wanted = merge(current) if current is not None and current.status.boot_id_after is None else None
    if current is not None and wanted is not None and wanted.boots and not wanted.awaits_turn:
        ordered = current.status.image_ref or ordered
    if running is None or assigned is None or {assigned, ordered} <= {running, None}:
        return
    if ordered == assigned:
        yield f"Image {assigned} is assigned to it: the next boot brings it"
    else:
        yield f"the next boot that is ordered brings Image {ordered}; one that nobody orders, Image {assigned}"


def _unwell(condition: Any) -> str:
    if condition is None or (condition.status == "True" and condition.reason != "SlowBMC"):
        return ""
    return f" ({condition.reason}): {condition.message}"


def checks(subject: ServerSubject) -> Iterable[str]:
    """The verification of the running boot, each check that has not passed, and the remedy."""
    found = subject.server.status.verification
    verified = find_condition(subject.server.status.conditions, "Verified")
    if found is None:
        return [f"{verified.reason}: {verified.message}"] if verified is not None else []
    if found.boot_id != subject.server.status.boot_id and subject.server.status.boot_id is not None:
        return [f"of an earlier boot ({found.boot_id})" + (f"; now {verified.message}" if verified else "")]
    passed = sum(1 for c in found.checks if c.result == "Passed")
    lines = [f"{passed} of {len(found.checks)} passed, round {found.attempt}"]
    if found.released_by:
        lines.append(f"let in unverified: {found.released_by}")
    lines += [f"{c.name} {c.result} ({c.reason}): {c.message}" for c in found.checks if c.result != "Passed"]
    if any(c.result == "Failed" for c in found.checks) and not found.released_by and found.finished_time:
        name = subject.server.name
        lines.append(
            f"repair it, then: kubectl provision retry {name}; or let it in as it is: "
            f"kubectl provision release {name} --verification -m WHY"
        )
    return lines


def faults(subject: ServerSubject) -> Iterable[str]:
    """Each Critical one, and how many others there are."""
    found = subject.server.status.faults
    critical = [record for record in found if record.severity == "Critical"]
    lines = []
    for record in critical[:SHOWN_FAULTS]:
        known = meaning_of(record.component, record.code, record.source)
        since = ago(parse_time(record.first_time), subject.now)
        where = f"{record.component} {record.device}".rstrip()
        gone = "" if record.reported else ", no longer reported"
        lines.append(f"{where} {record.code}, since {since}{gone}: {known.meaning}; remedy: {known.remedy}")
    others = len(found) - len(critical[:SHOWN_FAULTS])
    if others:
        lines.append(
            f"{quantity(others, 'other fault')} on record: kubectl provision health {subject.server.name} --all"
        )
    return lines


def last_maintenance(subject: ServerSubject) -> Iterable[str]:
    """How the last one ended, and why."""
    m = subject.last
    if m is None:
        return []
    found = find_condition(m.status.conditions, "Succeeded")
    when = f" {ago(parse_time(m.status.finished_time), subject.now)} ago" if m.status.finished_time else ""
    reason = f" ({found.reason}): {found.message}" if found is not None else ""
    lines = [f"Maintenance {m.name} ({m.status.action}) {str(m.status.phase).lower()}{when}{reason}"]
    if any(a.outcome != "Booted" for a in m.status.attempts):
        lines += [f"{a.method} {a.outcome or 'unknown'}: {a.message or ''}".rstrip(": ") for a in m.status.attempts]
    drained = find_condition(m.status.conditions, "SlurmDrained")
    if drained is not None and drained.status == "True":
        lines.append(drained.message)
    return lines


def events(subject: ServerSubject) -> Iterable[str]:
    """The last Events of Server and Node."""
    if subject.events is None:
        return ["may not be read with these credentials"]
    lines = []
    in_order = sorted(subject.events.events, key=event_time)
    # The Server and its Node are told the same.
    told = {(event.get("reason"), message_of(event)): event for event in in_order}
    left_out = max(0, len(told) - SHOWN_EVENTS) + subject.events.left_out
    if left_out:
        name = subject.server.name
        lines.append(
            f"{quantity(left_out, 'older one is', 'older ones are')} left out: "
            f"kubectl get events --field-selector involvedObject.name={name}"
        )
    for event in sorted(told.values(), key=event_time)[-SHOWN_EVENTS:]:
        moment = event_time(event)
        count = (event.get("series") or {}).get("count") or event.get("count") or 1
        times = f" ×{count}" if count > 1 else ""
        mark = "! " if event.get("type") == "Warning" else ""
        lines.append(
            f"{moment[:10]} {moment[11:19]}  {mark}{event.get('reason')}{times}: {clip(message_of(event), 160)}"
        )
    return lines
