"""From a Node's request conditions to the requestors of its server's Maintenances. Pure.

A condition becomes a requestor of the first Maintenance that has not begun and wants no other Image, else of a new one,
which waits. Changed words change the requestor until a reboot is begun; a withdrawn condition takes it away. Whoever
holds the condition's requestor answers it in the end, by setting it False. One that is still True although it was asked
for before that end is stale: somebody wrote an old state back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.nodes.contract import REQUEST_REFUSED
from provisioner.api.nodes.maintenance import Maintenance, Requestor
from provisioner.maintenance.requests.request import (
    ACTION_OF,
    REQUESTOR_OF,
    RequestRefusal,
    read_ask,
    read_requests,
)
from provisioner.maintenance.status.node_status import NodeCondition, missing
from provisioner.maintenance.status.verdict import Verdict, read_verdict
from provisioner.rules.nodes import NodeView, ObservedCondition
from provisioner.rules.requests import age, answered_until, find_target, has_begun, is_active, is_judged, is_same

CLOCKS_DIFFER: Final = timedelta(minutes=5)
"""How far ahead of ours a clock may be whose times are believed."""


@dataclass(frozen=True, kw_only=True)
class FileRequestor:
    """Put `requestor` into `target`, in place of the one of its name; into a new Maintenance if None."""

    requestor: Requestor
    target: Maintenance | None


@dataclass(frozen=True, kw_only=True)
class Withdraw:
    """Take the requestor of that name out of `target`. unasked: as its condition is not on the Node any more."""

    requestor: str
    target: Maintenance
    unasked: bool = False


@dataclass(frozen=True, kw_only=True)
class SetConditions:
    """Set conditions on the Node: refusals, and stale requests to False. `refusals`: those to tell of."""

    conditions: tuple[NodeCondition, ...]
    refusals: tuple[RequestRefusal, ...] = ()


Intake = FileRequestor | Withdraw | SetConditions


def take_in(node: NodeView | None, maintenances: Iterable[Maintenance], now: datetime) -> Intake | None:
    """The next thing to do about the requests on `node`; None if all are taken in."""
    ordered = sorted(maintenances, key=age)
    refusals: list[RequestRefusal] = []
    asked = read_requests(node) if node is not None else {}
    for type_, name in REQUESTOR_OF.items():
        holders = [m for m in ordered if is_active(m) and any(r.name == name for r in m.spec.requestors)]
        condition = asked.get(type_)
        if condition is None:
            # With a verdict the answer may be under way: who asked stays on record.
            withdrawn = [m for m in holders if not has_begun(m) or (node is not None and not is_judged(m))]
            if withdrawn:
                return Withdraw(requestor=name, target=withdrawn[0], unasked=True)
            continue
        answer = _last_answer(ordered, name)
        if not holders and answer is not None and answer.leaves_stale(condition):
            return SetConditions(conditions=(_stale(condition, answer),))
        existing = next((r for m in holders for r in m.spec.requestors if r.name == name), None)
        since = _asked_at(condition, existing, answer, now)
        ask = read_ask(condition, since)
        if isinstance(ask, RequestRefusal):
            refusals.append(ask)
            open_ = [m for m in holders if not has_begun(m)]
            if open_:
                return Withdraw(requestor=name, target=open_[0])
            continue
        wanted = Requestor(
            name=name,
            user=existing.user if existing is not None else None,
            action=ACTION_OF[type_],
            policy=ask.policy,
            deadline_time=rfc3339(ask.deadline) if ask.deadline is not None else None,
            image_ref=ask.image,
            message=condition.message[:1024] or None,
            requested_time=rfc3339(since),
        )
        filing = file_request(wanted, existing, holders, ordered)
        if filing is not None:
            return filing
    return _refuse(node, tuple(refusals)) if node is not None else None


def file_request(
    wanted: Requestor, existing: Requestor | None, holders: list[Maintenance], ordered: list[Maintenance]
) -> FileRequestor | Withdraw | None:
    """How `wanted` gets on record; None if it is. existing: the one of its name, which `holders` have. ordered: all
    Maintenances of the server."""
    if existing is not None and (has_begun(holders[0]) or is_same(existing, wanted)):
        return None
    target = find_target(ordered, wanted)
    if existing is not None and target is not holders[0]:
        return Withdraw(requestor=wanted.name, target=holders[0])  # and next into one that wants no other Image
    return FileRequestor(requestor=wanted, target=target)


@dataclass(frozen=True, kw_only=True)
class _Answer:
    """What a Maintenance that has ended did about requests of before `until`. `time`: of its verdict; `asked`: of the
    request that it took in."""

    by: str
    asked: datetime | None
    until: datetime
    time: datetime

    def leaves_stale(self, condition: ObservedCondition) -> bool:
        """Whether the condition, which is True, says what was answered."""
        # Our answer carries exactly `time`. A tool that sets True again and leaves the time as it was has that time.
        moment = condition.time
        return moment is not None and (moment < self.until or (self.asked is not None and moment <= self.asked))


def _last_answer(ordered: list[Maintenance], requestor: str) -> _Answer | None:
    ended: list[tuple[Verdict, Maintenance, Requestor]] = [
        (verdict, m, r)
        for m in ordered
        if not is_active(m) and (verdict := read_verdict(m.status)) is not None
        for r in m.spec.requestors
        if r.name == requestor
    ]
    if not ended:
        return None
    verdict, found, asker = max(ended, key=lambda each: parse_time(each[0].time))
    decided = parse_time(verdict.time)
    asked = parse_time(asker.requested_time) if asker.requested_time is not None else None
    return _Answer(
        by=found.name, asked=asked, until=answered_until(asker.action, found.status.reboot, decided), time=decided
    )


def _stale(condition: ObservedCondition, answer: _Answer) -> NodeCondition:
    asked = rfc3339(condition.time) if condition.time is not None else "an unknown time"
    words = (
        f"asked for at {asked}, and answered by Maintenance {answer.by} at {rfc3339(answer.time)}: nothing is done "
        "again; to ask anew, set it True with a lastTransitionTime of now, or with none"
    )
    return NodeCondition(type=condition.type, status="False", reason="Stale", message=words, time=rfc3339(answer.time))


def _asked_at(
    condition: ObservedCondition, existing: Requestor | None, answer: _Answer | None, now: datetime
) -> datetime:
    """When it was asked for: the condition's transition, unless that says nothing of this request.

    A writer may leave the time of the transition before, or have a clock of its own. Then it counts from when the
    request was first seen: a relative deadline must not be over before it began.
    """
    seen = existing.requested_time if existing is not None else None
    moment = condition.time
    is_new = answer is None or (moment is not None and moment > answer.until and moment != answer.time)
    if moment is not None and moment <= now + CLOCKS_DIFFER and is_new:
        return moment
    return parse_time(seen) if seen is not None else now


def _refuse(node: NodeView, refusals: tuple[RequestRefusal, ...]) -> SetConditions | None:
    if refusals:
        words = " | ".join(r.message for r in refusals)[:1024]
        wanted = NodeCondition(type=REQUEST_REFUSED, status="True", reason="NotUnderstood", message=words)
    else:
        words = "every request is understood"
        wanted = NodeCondition(type=REQUEST_REFUSED, status="False", reason="Understood", message=words)
    unsaid = missing(node.body, (wanted,))
    return SetConditions(conditions=unsaid, refusals=refusals) if unsaid else None
