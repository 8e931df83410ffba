"""The image is staged before the server is taken out of use: fetching and hashing it needs no empty machine. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from provisioner.api.images.image import intent_arguments
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.nodes.facts import BootIntent
from provisioner.api.nodes.maintenance import MaintenanceStatus
from provisioner.maintenance.model.facts import MaintenanceFacts, image_obstacle
from provisioner.maintenance.phases.reboot_methods import possible_methods
from provisioner.maintenance.status.record import Blocked, note
from provisioner.rules.stage_timeouts import method_timeout_seconds

NOT_STAGED: Final = "NotStaged"
_NEXT: Final = ("Steered", "Closed")
"""Turns that are before the server's own: what is fetched for it is needed."""


def stage_intent(facts: MaintenanceFacts) -> BootIntent | None:
    """What the agent shall stage while jobs run; None where nothing is to be booted by kexec, or where those who wait
    for their turn do not want it fetched yet."""
    node, wanted, image, pool = facts.node, facts.wanted, facts.image, facts.next_pool
    if node is None or node.boot_id is None or wanted is None or not wanted.boots or image is None or pool is None:
        return None
    if wanted.awaits_turn and not any(r.turn in _NEXT and r.staging != "Later" for r in wanted.heard):
        return None
    if "Kexec" not in possible_methods(facts, wanted.action) or image_obstacle(facts) is not None:
        return None
    digest = image.spec.digest
    return BootIntent(
        id=f"stage-{digest[7:19]}-{node.boot_id[:8]}",
        action="Stage",
        boot_id_before=node.boot_id,
        image=image.name,
        image_digest=digest,
        kernel_arguments=intent_arguments(pool, image),
    )


def awaits_staging(facts: MaintenanceFacts, now: datetime) -> list[Blocked]:
    """What the claim waits for where kexec is the first method: that the agent has staged the image, or cannot.

    Not with policy Now, not after a deadline, and not longer than a boot by kexec itself may take.
    """
    wanted, node, intent = facts.wanted, facts.node, stage_intent(facts)
    if wanted is None or node is None or intent is None or wanted.policy == "Now":
        return []
    if wanted.deadline is not None and now >= wanted.deadline:
        return []
    given_up = any(e.reason == NOT_STAGED and intent.id in e.about for e in facts.maintenance.status.timeline)
    if possible_methods(facts, wanted.action)[0] != "Kexec" or given_up:
        return []
    report = node.report if node.report is not None and node.report.id == intent.id else None
    if report is not None and report.state in ("Staged", "Failed"):
        return []
    said = f"it says {report.state}: {report.message}" if report is not None else "it has not answered yet"
    words = (
        f"its agent fetches and verifies Image '{intent.image}' while the server is still in use; {said}; it is "
        f"waited for at most {method_timeout_seconds('Kexec', facts.pool)} s; to skip this, ask with policy Now"
    )
    return [("Agent", node.name, words)]


def staging_ends(facts: MaintenanceFacts) -> datetime | None:
    """Until when the agent is waited for; None while it is not on record as waited for."""
    since = [parse_time(b.since_time) for b in facts.maintenance.status.blockers if _is_staging(facts, b.kind, b.name)]
    return min(since) + timedelta(seconds=method_timeout_seconds("Kexec", facts.pool)) if since else None


def give_up_staging(facts: MaintenanceFacts, now: datetime) -> MaintenanceStatus | None:
    """The record that the agent took too long, so that it is not waited for again; None while its time lasts."""
    intent, ends = stage_intent(facts), staging_ends(facts)
    limit = timedelta(seconds=method_timeout_seconds("Kexec", facts.pool))
    if intent is None or ends is None or now < ends <= now + limit:  # later only by a clock that was ahead
        return None
    words = f"{intent.id}: not staged by {rfc3339(ends)}; the server is claimed nevertheless"
    return note(facts.maintenance.status, now, NOT_STAGED, words, about=(intent.id,))


def _is_staging(facts: MaintenanceFacts, kind: str, name: str) -> bool:
    return kind == "Agent" and facts.node is not None and name == facts.node.name
