"""What the rollout asks of the executor for each server: an entry in a Maintenance, whose turn moves. Pure.

A request that has led to a claim is taken back only while no reboot was begun, and only where the image is not wanted
any more. One that waits follows every decision.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Final

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.maintenance import DISTURBING_PHASES, Maintenance, Requestor, RequestTurn
from provisioner.rollout.plan import Plan
from provisioner.rollout.standing import REQUESTOR, MemberFacts, RolloutTarget
from provisioner.rollout.wait import MemberWait
from provisioner.rules.requests import has_begun

_BAD_IMAGE: Final = frozenset(("Failures", "Halted"))
"""Waits of the whole pool under which nobody shall boot the image who has not begun to."""
_ORDER: Final[Mapping[RequestTurn, int]] = {"Granted": 0, "Closed": 1, "Steered": 2, "Waits": 3}
_ASKED: Final = attrgetter(*(f.name for f in fields(Requestor) if f.name not in ("requested_time", "staging")))
"""What an entry asks for, whenever it was asked; whoever fetches the image ahead goes on with that."""

_Turn = tuple[RequestTurn, float | None]
_Ranked = tuple[int, Requestor | None]


@dataclass(frozen=True, kw_only=True)
class RequestWrite:
    """One write about one server. entry: what is asked for from now on; None: nothing. own: where it was before."""

    server: str
    entry: Requestor | None
    own: Maintenance | None


@dataclass(frozen=True, kw_only=True)
class Asker:
    """What is the same in all requests of a rollout. user: the account that the API server knows the asker by."""

    target: RolloutTarget
    user: str

    def wants(self, entry: Requestor, standing: MemberFacts) -> bool:
        """Whether it is what that entry brings the server to."""
        brings_to = entry.node_pool_ref or standing.moves_from or self.target.pool
        return (brings_to, entry.image_ref) == (self.target.pool, self.target.name)


def on_newest(act: RequestWrite, maintenances: Iterable[Maintenance]) -> RequestWrite:
    """The act on the newest copy of its Maintenance, of `maintenances`, if nothing changed in it that was decided on.
    What its status says in words changes often."""
    newest = next((m for m in maintenances if act.own is not None and m.name == act.own.name), None)
    if act.own is None or newest is None or _decided_on(newest) != _decided_on(act.own):
        return act
    return replace(act, own=newest)


def _decided_on(own: Maintenance) -> tuple[object, ...]:
    return own.spec, own.status.phase, own.status.reboot, has_begun(own), own.metadata.deletion_timestamp


def find_acts(
    standings: Mapping[str, MemberFacts], found: Plan, asker: Asker, staging: int, now: datetime
) -> list[RequestWrite]:
    """What to write so that the requests are as the plan has them: turns that are taken back first, as others take
    their place, then those that let a server go on.

    staging: how many servers may fetch the image ahead at once.
    """
    turns, entry_for = _turns(found), cache(lambda turn, moves: _entry(asker, turn, moves, now))
    acts: list[tuple[int, RequestWrite]] = []
    for name, standing in standings.items():
        wanted = _wanted(standing, turns.get(name), found.stopped, asker, entry_for)
        if wanted is None:
            continue
        (rank, entry), before = wanted, standing.entry
        had_turn = before is not None and before.turn == "Granted"
        keeps_turn = entry is not None and entry.turn == "Granted"
        acts.append(
            (-1 if had_turn and not keeps_turn else rank, RequestWrite(server=name, entry=entry, own=standing.own))
        )
    acts = list(_bounded_staging(acts, standings, found, staging))
    return [act for _, act in sorted(acts, key=lambda each: each[0])]


def _turns(found: Plan) -> dict[str, _Turn]:
    turns: dict[str, _Turn] = {}
    turns.update(dict.fromkeys(found.steered, ("Steered", None)))
    turns.update({name: ("Closed", found.reserved.get(name)) for name in found.closed})
    turns.update(dict.fromkeys(found.claims, ("Granted", None)))
    turns.update({each.name: ("Granted", each.at) for each in found.interruptions})
    return turns


def _wanted(
    standing: MemberFacts,
    turn: _Turn | None,
    stopped: MemberWait | None,
    asker: Asker,
    entry_for: Callable[[_Turn, bool], Requestor],
) -> _Ranked | None:
    """The entry as it shall be, with its rank, if that is another than it is."""
    own, entry = standing.own, standing.entry
    if own is not None and entry is not None and own.status.phase in DISTURBING_PHASES:
        is_unwanted = not asker.wants(entry, standing) or (stopped is not None and stopped.reason in _BAD_IMAGE)
        is_open = entry.turn in (None, "Granted") and not has_begun(own)
        return (0, None) if is_open and is_unwanted else None
    wish = _wish(standing, turn, entry_for)
    if wish is None or (own is not None and has_begun(own)):  # its end is decided
        return None
    keeps_place = standing.is_told and standing.excluded is None and stopped is None
    return None if keeps_place and entry is not None and asker.wants(entry, standing) else wish


def _wish(standing: MemberFacts, turn: _Turn | None, entry_for: Callable[[_Turn, bool], Requestor]) -> _Ranked | None:
    """The same of a server that is not disturbed, by its state and its turn alone."""
    entry = standing.entry
    if standing.state in ("Updated", "Failed", "Absent") or standing.excluded is not None:
        return (4, None) if entry is not None else None
    if turn is None and entry is None:
        return None
    shall: _Turn = turn or ("Waits", None)
    wanted = entry_for(shall, standing.moves_from is not None)
    if entry is None:
        return _ORDER[shall[0]], wanted
    return (_ORDER[shall[0]], replace(wanted, staging=entry.staging)) if _ASKED(entry) != _ASKED(wanted) else None


def _entry(asker: Asker, turn: _Turn, moves: bool, now: datetime) -> Requestor:
    (named, at), pool = turn, asker.target.pool
    moment = rfc3339(datetime.fromtimestamp(at, UTC)) if at is not None else None
    closes_at, deadline = (moment, None) if named == "Closed" else (None, moment)
    no_job = "no new job" + f" that may run past {closes_at}" * (closes_at is not None)
    image = f"Image '{asker.target.name}' in NodePool '{pool}'" + (", to which it moves" if moves else "")
    words = {
        "Waits": f"waits for its turn in the rollout of {image}",
        "Steered": f"waits for its turn in the rollout of {image}; new pods go elsewhere where they can",
        "Closed": f"takes {no_job}, for the rollout of {image}: it is its turn when those that run have ended",
        "Granted": f"rollout of {image}",
    }[named]
    return Requestor(
        name=REQUESTOR,
        user=asker.user,
        action="Reimage",
        policy="WhenIdle" if deadline is None else "Deadline",
        deadline_time=deadline,
        image_ref=asker.target.name,
        node_pool_ref=pool if moves else None,
        message=f"{words}: kubectl provision rollout status {pool}",
        requested_time=rfc3339(now),
        turn=named,
        closing_time=closes_at,
        staging=None if named == "Granted" else "Later",
    )


def _bounded_staging(
    acts: Iterable[tuple[int, RequestWrite]], standings: Mapping[str, MemberFacts], found: Plan, most: int
) -> Iterator[tuple[int, RequestWrite]]:
    """The acts, with those added or changed by which the next servers fetch the image ahead: those whose jobs end
    first, of those that are closed."""
    acts = list(acts)
    unstaged = {name: standing for name, standing in standings.items() if not standing.staged}
    places = max(0, most - sum(map(_fetches, unstaged.values())))
    candidates = [name for name in found.closed if name in unstaged and _may_fetch(unstaged[name])]
    chosen: set[str] = set()
    if places and candidates:
        ends = {m.name: m.runs.ends for m in found.working if m.runs is not None}
        chosen.update(heapq.nsmallest(places, candidates, key=lambda n: (ends.get(n) is None, ends.get(n) or 0.0, n)))
    for rank, act in acts:
        if act.entry is not None and act.server in chosen and act.entry.turn == "Closed":
            chosen.discard(act.server)
            yield rank, replace(act, entry=replace(act.entry, staging="Now"))
        else:
            yield rank, act
    for name in sorted(chosen):
        standing = standings[name]
        entry = standing.entry
        if entry is not None and entry.turn == "Closed":
            yield 2, RequestWrite(server=name, entry=replace(entry, staging="Now"), own=standing.own)


def _may_fetch(standing: MemberFacts) -> bool:
    """Not while the executor is about to write to what was just filed: one of both would meet a conflict."""
    is_just_filed = standing.own is not None and standing.own.status.phase is None
    return not is_just_filed and not _fetches(standing)


def _fetches(standing: MemberFacts) -> bool:
    entry = standing.entry
    return entry is not None and entry.turn == "Closed" and entry.staging == "Now"
