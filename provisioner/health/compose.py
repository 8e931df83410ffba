"""From what was judged to what the health controller writes: all the fields that it owns, and the Events. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from provisioner.api.machinery.codec import to_json
from provisioner.api.machinery.conditions import condition_of, find_condition
from provisioner.api.machinery.meta import Condition, ConditionStatus, rfc3339
from provisioner.api.machinery.wording import clip
from provisioner.api.nodes.contract import HOLD_TAINT, MAINTENANCE_TAINT, VERIFICATION_TAINT
from provisioner.api.servers.discovery import NAME_PREFIX
from provisioner.api.servers.server import Lifecycle, ServerStatus, Verification
from provisioner.cluster.events import Happened
from provisioner.health.checks.facts import NAME as FACTS_CHECK
from provisioner.health.decision import CurrentRound, HealthDecision, JobOrder
from provisioner.health.requests import RequestAnswer
from provisioner.health.situation import CheckInputs, NoBoot, boot_to_judge
from provisioner.rules.nodes import NodeView

# Where a server is between its registration and its retirement. Pure.
#
#     Retired        spec.acceptance is Rejected, or spec.powerState is Off with no Maintenance under way
#     Maintenance    a Maintenance disturbs it
#     Held           a person holds it (Node condition provisioner.dev/HoldRequested)
#     Registered     on a packing list, not accepted
#     Discovered     an unknown machine that asked to boot, not accepted
#     Accepted       may boot; no boot was ordered yet
#     Booting        the ordered boot has not joined, or its Node does not report it yet
#     Booted         it has, and the checks have not passed
#     Verified       they have, and something else keeps jobs away: not Ready, cordoned, a taint of the provisioner
#     InProduction   jobs may come
#
# The first that is true counts.


def find_lifecycle(situation: CheckInputs, *, verified: bool) -> Lifecycle:
    """verified: whether the checks of the boot that runs have passed, or a person let it in."""
    server, node = situation.server, situation.node
    if server.spec.acceptance == "Rejected":
        return "Retired"
    if situation.maintenance is not None:
        return "Maintenance"
    if server.spec.power_state == "Off":
        return "Retired"
    if node is not None and node.held:
        return "Held"
    if server.spec.acceptance == "Pending":
        asked_to_boot = server.status.discovery is not None or server.name.startswith(NAME_PREFIX)
        return "Discovered" if asked_to_boot else "Registered"
    if server.status.order is None:
        if node is None or node.boot_id is None:
            return "Accepted"
        return "InProduction" if _takes_jobs(node) else "Booted"
    if not isinstance(boot_to_judge(server, node), str) or node is None:
        return "Booting"
    if not verified:
        return "Booted"
    return "InProduction" if _takes_jobs(node) else "Verified"


def _takes_jobs(node: NodeView) -> bool:
    ours = (VERIFICATION_TAINT, MAINTENANCE_TAINT, HOLD_TAINT)
    # One that jobs are only steered away from (PreferNoSchedule) takes those that no other server takes.
    kept_away = any(node.has_taint(key, but_effect="PreferNoSchedule") for key in ours)
    return node.ready and not node.unschedulable and not kept_away


VERIFIED: Final = "Verified"
STARTED: Final = "VerificationStarted"
"""The Event of a round that began, and did not come out at once."""
MAX_MESSAGE: Final = 4096

_EVENTS: Final = {"Passed": "VerificationPassed", "Released": "VerificationReleased"}


def has_passed(verification: Verification) -> bool:
    """Whether the round is over and every check of it passed."""
    checks = verification.checks
    return verification.finished_time is not None and bool(checks) and all(c.result == "Passed" for c in checks)


def compose(
    situation: CheckInputs,
    verification: Verification | None,
    now: datetime,
    *,
    no_boot: NoBoot | None = None,
    repeats_at: datetime | None = None,
    start: JobOrder | None = None,
    current: CurrentRound | None = None,
    answers: tuple[RequestAnswer, ...] = (),
    requeue_after_seconds: float | None = None,
) -> HealthDecision:
    """The decision. no_boot: why there is nothing to judge; `verification` is then that of an earlier boot."""
    said: tuple[ConditionStatus, str, str] | None = None
    is_said = find_condition(situation.server.status.conditions, VERIFIED) is not None
    if no_boot is not None and (no_boot.reason != "WaitsForBoot" or is_said):
        # Of a server that is on its way to its first boot the boot controller says all that there is to say.
        said = ("Unknown", no_boot.reason, no_boot.message)
    elif no_boot is None and verification is not None:
        said = _say(situation, verification, repeats_at)
    condition = None
    if said is not None:
        status, reason, message = said
        condition = condition_of(situation.server, VERIFIED, status, reason, clip(message, MAX_MESSAGE), now)
    verified = condition is not None and condition.status == "True"
    owned = ServerStatus(
        verification=verification,
        lifecycle=find_lifecycle(situation, verified=verified),
        conditions=(condition,) if condition is not None else (),
    )
    return HealthDecision(
        status=to_json(owned) | {"conditions": [to_json(each) for each in owned.conditions]},
        events=_events(situation, condition, verification if no_boot is None else None),
        start=start,
        current=current,
        answers=answers,
        requeue_after_seconds=requeue_after_seconds,
    )


def _say(
    situation: CheckInputs, verification: Verification, repeats_at: datetime | None
) -> tuple[ConditionStatus, str, str]:
    boot, attempt = verification.boot_id, verification.attempt
    if verification.released_by is not None:
        return "True", "Released", f"boot {boot} was let in unverified, by request: {verification.released_by}"
    if has_passed(verification):
        return "True", "Passed", f"all {len(verification.checks)} checks of boot {boot} passed (round {attempt})"
    if verification.finished_time is not None:
        failed = [each for each in verification.checks if each.result == "Failed"]
        words = "; ".join(f"{each.name}: {each.message}" for each in failed)
        return "False", _word(failed[0].name), f"{words}; {_what_next(situation.server.name, attempt, repeats_at)}"
    waits = [each for each in verification.checks if each.result == "Running"]
    if any(each.name == FACTS_CHECK for each in waits):
        return "Unknown", "WaitsForFacts", waits[0].message
    words = "; ".join(f"{each.name}: {each.message}" for each in waits)
    return "Unknown", "Running", f"round {attempt} of the checks of boot {boot}: {words}"


def _what_next(server: str, attempt: int, repeats_at: datetime | None) -> str:
    if repeats_at is not None:
        return f"round {attempt} failed, the next one begins at {rfc3339(repeats_at)}"
    return (
        f"round {attempt} failed, a person must act: repair it, then kubectl provision retry {server}; or let it in "
        f"for this boot as it is: kubectl provision release {server} --verification -m WHY"
    )


def _word(check: str) -> str:
    """A check's name as a reason: gpu-burn becomes GpuBurn, GPUs stays."""
    return "".join(part[:1].upper() + part[1:] for part in check.replace(".", "-").split("-"))


def _events(
    situation: CheckInputs, condition: Condition | None, verification: Verification | None
) -> tuple[Happened, ...]:
    """What changed: a round began, or it came out. Each round is told of once."""
    if verification is None or condition is None:
        return ()
    before = situation.server.status.verification
    same_round = before is not None and (before.boot_id, before.attempt) == (verification.boot_id, verification.attempt)
    was_over = same_round and before is not None and before.finished_time is not None
    was_released = same_round and before is not None and before.released_by is not None
    events = []
    over = verification.finished_time is not None
    if not same_round and not over and verification.released_by is None:
        words = f"round {verification.attempt} of the checks of boot {verification.boot_id} began"
        events.append(Happened(type="Normal", reason=STARTED, message=words))
    if over and (not was_over or (verification.released_by is not None and not was_released)):
        reason = (
            _EVENTS.get(condition.reason, "VerificationFailed") if condition.status == "True" else "VerificationFailed"
        )
        calm = reason == "VerificationPassed"
        events.append(Happened(type="Normal" if calm else "Warning", reason=reason, message=condition.message))
    return tuple(events)
