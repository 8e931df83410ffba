"""Verifying: what proves that the new boot is the wanted one, and fit for use. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import BlockerKind, RebootAttempt
from provisioner.api.servers.server_status import is_given_up
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.steps import Step, Wait, WriteStatus, changed, judged
from provisioner.maintenance.phases.new_boot import is_wrong_image
from provisioner.maintenance.requests.effective import effective
from provisioner.maintenance.status.record import end_attempt, next_step, note, set_blockers, with_conditions
from provisioner.maintenance.status.verdict import Cause
from provisioner.rules.boot_order import has_fetched
from provisioner.rules.disturbance import answering_order

POLL_SECONDS: Final = 5.0


def decide_verifying(facts: MaintenanceFacts, now: datetime) -> Step:
    """Done is proved by the new boot, its image, Ready and the checks, whatever Ready looked like in between."""
    m, node, attempt = facts.maintenance, facts.node, facts.maintenance.status.reboot
    if attempt is None:
        return Wait(seconds=POLL_SECONDS)
    if is_wrong_image(facts):
        digest = node.facts.image_digest if node is not None and node.facts is not None else "another one"
        words = f"it booted an image of digest {digest}, not {attempt.image_digest} ({attempt.image_ref})"
        status = note(end_attempt(m.status, "WrongImage", words, now), now, "WrongImage", words, phase="Rebooting")
        status = next_step(replace(status, blockers=()), "is rebooted once more, by another method")
        return WriteStatus(status=with_conditions(m, status, now))
    doubt = _doubt(facts, attempt)
    if doubt is None:
        return _verified(facts, now)
    given_up = _given_up(facts, attempt)
    if given_up is not None:
        return judged(m, "NotVerified", given_up, now)
    limit = facts.pool.spec.maintenance.verification_timeout_seconds if facts.pool is not None else 1800
    since = parse_time(attempt.ended_time or attempt.started_time)
    cause, kind, words = doubt
    if now >= since + timedelta(seconds=limit):
        return judged(m, cause, f"not done {limit} s after the boot was seen: {words}", now)
    status = set_blockers(effective(facts, now), [(kind, facts.server_name, words)], now)
    status = next_step(status, "is released when the boot is proved: image, Ready, checks")
    return changed(m, status, now) or Wait(seconds=POLL_SECONDS)


def _verified(facts: MaintenanceFacts, now: datetime) -> WriteStatus:
    m, node = facts.maintenance, facts.node
    boot_id = node.boot_id if node is not None else None
    attempt = m.status.reboot
    words = f"boot {boot_id} runs Image {attempt.image_ref if attempt else ''}, is Ready and has passed its checks"
    status = replace(m.status, boot_id_after=boot_id, blockers=())
    if facts.wanted is not None and facts.wanted.keeps_drained:
        status = note(status, now, "BootVerified", f"{words}; it stays out of use as somebody wants", phase="Drained")
        return WriteStatus(status=with_conditions(m, next_step(status, "stays out of use"), now))
    return judged(replace(m, status=status), "Booted", words, now)


def _doubt(facts: MaintenanceFacts, attempt: RebootAttempt) -> tuple[Cause, BlockerKind, str] | None:
    """What is not proved yet, and what that would be called in the end."""
    server, node, status = facts.server, facts.node, facts.maintenance.status
    if node is None or node.boot_id is None or node.boot_id == (status.boot_id_before or "").lower():
        return "NodeNotReady", "Server", f"the kubelet of the new boot has not reported to Node '{facts.server_name}'"
    if server is None:
        return "NodeNotReady", "Server", "its Server is gone"
    order = answering_order(server, attempt)
    if order is not None and not has_fetched(server):
        return "NodeNotReady", "Server", f"boot order {order.id} has not joined yet: another boot may follow"
    verification = server.status.verification
    checked = verification is not None and verification.boot_id.lower() == node.boot_id
    digest = node.facts.image_digest if node.facts is not None else None
    if digest is None and verification is not None and checked:
        digest = verification.image_digest
    if digest is None:
        digest = server.status.image_digest
    if digest != attempt.image_digest:
        return (
            "WrongImage",
            "Agent",
            f"it is not known to run {attempt.image_digest}, but {digest or 'an unknown image'}",
        )
    if not node.ready:
        return "NodeNotReady", "Server", f"Node '{node.name}' is not Ready"
    verified = find_condition(server.status.conditions, "Verified")
    if not checked or verified is None or verified.status != "True":
        words = f": {verified.message}" if verified is not None and verified.message and checked else ""
        return "NotVerified", "Checks", f"the checks of boot {node.boot_id} have not passed{words}"
    return None


def _given_up(facts: MaintenanceFacts, attempt: RebootAttempt) -> str | None:
    """What the health controller says once it begins no round of checks by itself any more: a person must act.

    The sign for that is in status.verification, see `is_given_up`, with Verified False for the boot that runs.
    """
    server, node, pool = facts.server, facts.node, facts.pool
    if server is None or node is None or pool is None:
        return None
    checked = server.status.verification
    if answering_order(server, attempt) is not None and not has_fetched(server):
        return None  # another boot may follow
    verified = find_condition(server.status.conditions, "Verified")
    if checked is None or checked.boot_id.lower() != node.boot_id or verified is None or verified.status != "False":
        return None
    if not is_given_up(checked, pool.spec.verification.attempts):
        return None
    return f"the checks of boot {node.boot_id} have failed: {verified.message}"
