"""Whether the boot that runs may be used: a round of checks, another one, or a person's word. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from provisioner.api import NodePool
from provisioner.api.machinery.meta import parse_time, rfc3339, rfc3339_micro
from provisioner.api.servers.server import Verification
from provisioner.api.servers.server_status import is_given_up
from provisioner.health.compose import compose, has_passed
from provisioner.health.decision import CurrentRound, HealthDecision, JobOrder
from provisioner.health.look import look_at
from provisioner.health.requests import (
    CheckRequests,
    RequestAnswer,
    answer_release,
    answer_retry,
    read_requests,
    release_standing,
    release_words,
    seen_time,
    was_taken,
)
from provisioner.health.round import look
from provisioner.health.situation import CheckInputs, NoBoot, boot_to_judge
from provisioner.rules.nodes import NodeView
from provisioner.rules.pool_of_server import ordered_pool_name

PAUSE: Final = timedelta(seconds=60)
"""Between a failed round and the next one."""
LOOK_AGAIN_SECONDS: Final = 2.0
"""While something is waited for that is not watched: a Lease, an Image."""


def decide(situation: CheckInputs, now: datetime) -> HealthDecision:
    """Judge the boot of a server. Nothing is decided while there is none that was ordered, joined and runs."""
    server, node = situation.server, situation.node
    requests = read_requests(node)
    boot = boot_to_judge(server, node)
    if not isinstance(boot, str) or node is None:
        answers = _refused(requests) if isinstance(boot, NoBoot) and boot.reason == "Adopted" else ()
        kept = server.status.verification if server.status.order is not None else None
        return compose(situation, kept, now, no_boot=boot if isinstance(boot, NoBoot) else None, answers=answers)
    before = server.status.verification
    if before is not None and before.boot_id != boot:
        before = None
    pool = situation.pool
    begun = _released(situation, before, boot, requests, now) or _begin(before, boot, pool, requests, now)
    if begun.finished_time is not None:
        return _closed(situation, begun, requests, now)
    if pool is None:
        waits = NoBoot(
            "WaitsForPool", f"NodePool {ordered_pool_name(server)} does not exist; create it, or name another"
        )
        return compose(situation, begun, now, no_boot=waits)
    return _go_on(situation, pool, node, begun, requests, now)


def _released(
    situation: CheckInputs, before: Verification | None, boot: str, requests: CheckRequests, now: datetime
) -> Verification | None:
    """The round as a person ended it; None unless a release counts, and nothing had let the Node in before."""
    release = requests.release
    if release is None or release_standing(release, situation.server) == "Stale":
        return None
    if before is not None and (before.released_by is not None or has_passed(before)):
        return None
    opened = before or _round(boot, 1, now)
    return replace(opened, finished_time=rfc3339_micro(now), released_by=release_words(release))


def _begin(
    before: Verification | None, boot: str, pool: NodePool | None, requests: CheckRequests, now: datetime
) -> Verification:
    """The round that is to be judged now: a first one, the one under way, or another after a failed one."""
    retry = requests.retry
    seen = seen_time(retry, now) if retry is not None else None
    if before is None:
        return _round(boot, 1, now, retry_seen_time=seen)
    if before.finished_time is None:
        fresh = retry is not None and not was_taken(retry, before)
        return replace(before, retry_seen_time=seen) if fresh else before
    if has_passed(before) or before.released_by is not None:
        return before
    if retry is not None and not was_taken(retry, before):
        return _round(boot, before.attempt + 1, now, retry_seen_time=seen)
    due = repeats_at(before, pool)
    if due is not None and now >= due:
        return _round(boot, before.attempt + 1, now, retry_seen_time=before.retry_seen_time)
    return before


def repeats_at(failed: Verification, pool: NodePool | None) -> datetime | None:
    """When a failed round is repeated by itself; None if a person must ask."""
    if pool is None or failed.finished_time is None or is_given_up(failed, pool.spec.verification.attempts):
        return None
    return parse_time(failed.finished_time) + PAUSE


def _go_on(
    situation: CheckInputs,
    pool: NodePool,
    node: NodeView,
    begun: Verification,
    requests: CheckRequests,
    now: datetime,
) -> HealthDecision:
    now_there = look_at(situation, pool, node)
    seen = look(begun.checks, now_there.findings, situation, now)
    judged = replace(begun, checks=seen.results, image_digest=now_there.image_digest or begun.image_digest)
    if seen.is_over:
        return _closed(situation, replace(judged, finished_time=rfc3339_micro(now)), requests, now)
    waits = LOOK_AGAIN_SECONDS if any(not each.ok for each in now_there.findings) else None
    if seen.next_change is not None:
        waits = min(waits or 3600.0, max(0.5, (seen.next_change - now).total_seconds()))
    return compose(
        situation,
        judged,
        now,
        start=JobOrder(check=seen.start, boot_id=judged.boot_id, attempt=judged.attempt) if seen.start else None,
        current=CurrentRound(boot_id=judged.boot_id, attempt=judged.attempt),
        answers=_stale_release(situation, requests),
        requeue_after_seconds=waits,
    )


def _closed(situation: CheckInputs, closed: Verification, requests: CheckRequests, now: datetime) -> HealthDecision:
    """The round is over: say so, answer who asked, and look again when it is to be repeated."""
    if requests.retry is None:
        closed = replace(closed, retry_seen_time=None)  # it was answered: the next one counts, whatever time it bears
    failed = closed.released_by is None and not has_passed(closed)
    due = repeats_at(closed, situation.pool) if failed else None
    return compose(
        situation,
        closed,
        now,
        repeats_at=due,
        current=CurrentRound(boot_id=closed.boot_id, attempt=None),
        answers=(*_answers(closed, requests), *_stale_release(situation, requests)),
        requeue_after_seconds=max(0.5, (due - now).total_seconds()) if due is not None else None,
    )


def _answers(closed: Verification, requests: CheckRequests) -> tuple[RequestAnswer, ...]:
    outcome, words = _outcome(closed)
    answers = []
    if requests.retry is not None:
        answers.append(answer_retry(outcome, words))
    if requests.release is not None and closed.released_by is not None:
        answers.append(answer_release("Released", f"let in for boot {closed.boot_id}: {closed.released_by}"))
    elif requests.release is not None and outcome == "Passed":
        answers.append(answer_release("NotNeeded", words))
    return tuple(answers)


def _outcome(closed: Verification) -> tuple[str, str]:
    if closed.released_by is not None:
        return "Released", f"boot {closed.boot_id} was released: {closed.released_by}; reboot it to have it checked"
    if has_passed(closed):
        return "Passed", f"round {closed.attempt} of the checks of boot {closed.boot_id} passed"
    failed = "; ".join(f"{each.name}: {each.message}" for each in closed.checks if each.result == "Failed")
    return "Failed", f"round {closed.attempt} of the checks of boot {closed.boot_id} failed: {failed}"


def _stale_release(situation: CheckInputs, requests: CheckRequests) -> tuple[RequestAnswer, ...]:
    release, join = requests.release, situation.server.status.join
    if release is None or join is None or release_standing(release, situation.server) == "Counts":
        return ()
    asked = (
        f"was asked for at {rfc3339(release.time)}" if release.time is not None else "says not when it was asked for"
    )
    words = f"the release {asked}, this boot began at {join.fetched_time}: ask again, with lastTransitionTime of now"
    return (answer_release("Stale", words),)


def _refused(requests: CheckRequests) -> tuple[RequestAnswer, ...]:
    words = "the provisioner did not boot this Node: it is neither checked nor kept out of use"
    retry = (answer_retry("NotApplicable", words),) if requests.retry is not None else ()
    return (*retry, answer_release("NotApplicable", words)) if requests.release is not None else retry


def _round(boot: str, attempt: int, now: datetime, *, retry_seen_time: str | None = None) -> Verification:
    return Verification(boot_id=boot, attempt=attempt, started_time=rfc3339_micro(now), retry_seen_time=retry_seen_time)
