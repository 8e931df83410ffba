"""Waiting: what for, and when the claim may be made. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.meta import parse_time, rfc3339, rfc3339_micro
from provisioner.api.nodes.maintenance import MaintenanceStatus
from provisioner.maintenance.model.facts import MaintenanceFacts
from provisioner.maintenance.model.steps import NeedBudget, SetIntent, Step, Wait, WriteStatus, changed
from provisioner.maintenance.phases.blocking import (
    earlier_askers,
    host_in_use,
    obstacles,
    over_budget,
    refused_before,
    running_jobs,
    unturned,
)
from provisioner.maintenance.phases.brought import awaits_bringing
from provisioner.maintenance.phases.closing import close_or_open, intended_drain, open_behind, reservation_begin
from provisioner.maintenance.phases.staging import awaits_staging, give_up_staging, stage_intent, staging_ends
from provisioner.maintenance.requests.effective import effective, eviction_moment, may_interrupt
from provisioner.maintenance.status.record import (
    Blocked,
    describe,
    next_step,
    note,
    set_blockers,
    with_conditions,
)

SHORTEST_LOOK_SECONDS: Final = 5.0
LONGEST_LOOK_SECONDS: Final = 60.0
TURN_LOOK_SECONDS: Final = 2.0
UNTURNED_LOOK_SECONDS: Final = 3600.0
"""Thousands may wait for their turn; one that comes is a write to the Maintenance, which is seen at once."""
CONTENDED_SECONDS: Final = 5.0
"""After two claimed more than the budget allows and both stood back: each waits up to so long, by its name."""


def decide_waiting(facts: MaintenanceFacts, now: datetime) -> Step:
    """Wait, or claim the server."""
    if facts.wanted is not None and facts.wanted.awaits_turn:
        return _await_turn(facts, now)
    blocked = obstacles(facts) or refused_before(facts, now)
    blocked = blocked or awaits_bringing(facts, now) or running_jobs(facts, now)
    if not blocked:
        blocked = awaits_staging(facts, now)
        given_up = give_up_staging(facts, now) if blocked else None
        if given_up is not None:
            return WriteStatus(status=given_up)
    if not blocked:
        if facts.budget is None or (facts.budget.has_room and not facts.budget.fresh):
            return NeedBudget(fresh=facts.budget is not None)
        blocked = over_budget(facts) or earlier_askers(facts, now) or host_in_use(facts)
    if not blocked:
        rest = _stand_back(facts, now)
        return Wait(seconds=rest) if rest > 0 else WriteStatus(status=_claimed(facts, now))
    status = next_step(set_blockers(effective(facts, now), blocked, now), _next_words(facts, blocked, now))
    return changed(facts.maintenance, status, now) or _prepare(facts, now) or _wait(facts, now)


def _await_turn(facts: MaintenanceFacts, now: datetime) -> Step:
    """Its turn has come for nobody: neither what runs there nor the budget is looked at. The server is closed, or jobs
    steered away from it, as its turn says."""
    status = next_step(set_blockers(effective(facts, now), unturned(facts), now), "is claimed when its turn has come")
    # What the API server refused is tried again, and nothing tells when it would not refuse it any more.
    longest, begins = LONGEST_LOOK_SECONDS if facts.refused else UNTURNED_LOOK_SECONDS, reservation_begin(facts, now)
    rest = (begins - now).total_seconds() if begins is not None else longest
    step = changed(facts.maintenance, status, now) or _prepare(facts, now)
    return step or Wait(seconds=max(0.5, min(longest, rest)))


def decide_behind(facts: MaintenanceFacts, now: datetime) -> Step:
    """Another Maintenance holds the server. Where that one has jobs come, a drain of one's own in Slurm is lifted."""
    ahead = facts.ahead
    name = ahead.name if ahead is not None else ""
    words = f"Maintenance {name} holds the server; {ahead.status.next_step if ahead is not None else ''}".rstrip("; ")
    status = set_blockers(effective(facts, now), [("Maintenance", name, words), *unturned(facts)], now)
    status = next_step(status, f"comes after Maintenance {name}, and is done with it if that does what it wants")
    return changed(facts.maintenance, status, now) or open_behind(facts) or Wait(seconds=LONGEST_LOOK_SECONDS)


def _stand_back(facts: MaintenanceFacts, now: datetime) -> float:
    """Seconds to wait after a claim that the budget did not allow, so that not all claim again at once."""
    tail = [e for e in facts.maintenance.status.timeline[-3:] if e.reason == "OverBudget"]
    if not tail:
        return 0.0
    share = sum(facts.maintenance.name.encode()) % 17 / 16
    until = parse_time(tail[-1].time) + timedelta(seconds=1 + share * (CONTENDED_SECONDS - 1))
    rest = (until - now).total_seconds()
    return rest if 0 < rest <= CONTENDED_SECONDS else 0.0  # longer only by a clock that was ahead


def _claimed(facts: MaintenanceFacts, now: datetime) -> MaintenanceStatus:
    """Written before anything is done, with what is needed to know afterwards whether it happened."""
    node = facts.node
    status = replace(
        effective(facts, now),
        node_uid=node.uid if node is not None else None,
        boot_id_before=node.boot_id if node is not None else None,
        boot_id_after=None,
        claimed_time=rfc3339_micro(now),
        drained_time=None,
        blockers=(),
        attempts=(),  # of an earlier claim; they stay in the record
        # Written before it is drained: should all else be gone after a crash, this still says what to lift.
        slurm=intended_drain(facts),
    )
    words = f"{describe(facts.maintenance, status)}: the server is claimed"
    if status.boot_id_before is not None:
        words += f" in boot {status.boot_id_before}"
    status = note(status, now, "Claimed", words, phase="Claiming")
    status = next_step(status, "is closed to new jobs, then looked at once more")
    return with_conditions(facts.maintenance, status, now)


def _prepare(facts: MaintenanceFacts, now: datetime) -> Step | None:
    """What is done while jobs run: close the server, where that is wanted so early; stage the image."""
    node = facts.node
    if node is None:
        return None
    step = close_or_open(facts, now)
    if step is not None:
        return step
    wanted = stage_intent(facts)
    differs = wanted != node.intent or (wanted is None and node.has_intent)
    if differs and not facts.rests("Intent", now):
        return SetIntent(intent=wanted)
    return None


def _wait(facts: MaintenanceFacts, now: datetime) -> Wait:
    status, wanted, pool = facts.maintenance.status, facts.wanted, facts.pool
    waited = min((now - parse_time(b.since_time)).total_seconds() for b in status.blockers) if status.blockers else 0.0
    seconds = min(LONGEST_LOOK_SECONDS, max(SHORTEST_LOOK_SECONDS, waited / 10))
    ends = staging_ends(facts)
    if ends is not None and ends > now:
        seconds = min(seconds, max(0.5, (ends - now).total_seconds()))
    if any(b.kind == "Maintenance" for b in status.blockers):
        seconds = TURN_LOOK_SECONDS
    if wanted is None or wanted.policy != "Deadline" or wanted.deadline is None or pool is None:
        return Wait(seconds=seconds)
    warning = wanted.deadline - timedelta(seconds=pool.spec.maintenance.warning_seconds)
    moments = [m for m in (warning, eviction_moment(facts)) if m is not None and m > now]
    seconds = max(0.5, min([seconds, *((m - now).total_seconds() for m in moments)]))
    has_jobs = facts.work is not None and bool(facts.work.jobs)
    if now < warning or not has_jobs or may_interrupt(facts, now):
        return Wait(seconds=seconds)
    return Wait(
        seconds=seconds, warn=eviction_moment(facts, warned=parse_time(status.warned_time or rfc3339_micro(now)))
    )


def _next_words(facts: MaintenanceFacts, blocked: list[Blocked], now: datetime) -> str:
    kinds = {kind for kind, _, _ in blocked}
    wanted = facts.wanted
    if kinds & {"Pod", "PodGroup", "SlurmJob"} and wanted is not None:
        if wanted.policy == "Deadline" and wanted.deadline is not None and not may_interrupt(facts, now):
            return f"is claimed when its jobs have ended, or at {rfc3339(wanted.deadline)}"
        return "is claimed when its jobs have ended"
    if kinds & {"Budget", "Maintenance"}:
        return "is claimed when another server of the pool is back, and those that asked earlier have had their turn"
    if kinds == {"Agent"} and any(
        kind == "Agent" and facts.node and name == facts.node.name for kind, name, _ in blocked
    ):
        return "is claimed when its agent has staged the image"
    return "is claimed when nothing stands in the way any more"
