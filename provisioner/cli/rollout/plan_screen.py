"""`rollout plan`: what would happen, on one screen. Pure: the same proposal gives the same words."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.machinery.wording import ago, clip, quantity, some, span
from provisioner.cli.kubectl.printing import WIDTH, screen, table
from provisioner.cli.rollout.planning import Proposal
from provisioner.rollout.forecast import ForecastMove, ForecastStage
from provisioner.rollout.members import NOT_KNOWN
from provisioner.rollout.wait import MemberWait, but_for

SHOWN: Final = 30
SHOWN_STAYS: Final = 10
JOBS_LENGTH: Final = 60
HEADER: Final = ("ORDER", "SERVER", "RUNS", "BEGINS", "STAGE", "WAITS-FOR")


def render_plan(proposal: Proposal, *, everything: bool = False) -> str:
    """The screen; ends with a newline."""
    sections: tuple[tuple[str, Iterable[str]], ...] = (
        ("now", _now(proposal)),
        ("stages", _stages(proposal)),
        ("complete", _completion(proposal)),
        ("costs", _costs(proposal)),
        ("jobs end", _ended(proposal)),
        ("stay", _stays(proposal)),
        ("not known", proposal.unknown),
    )
    told = screen(_headline(proposal), sections)
    return told + _table(proposal, everything=everything) + _assumptions(proposal)


def _headline(proposal: Proposal) -> str:
    pool, moves = proposal.view.pool, proposal.forecast.moves
    size = len(proposal.view.standings)
    going = quantity(len(moves), "server")
    return f"{pool.name} to Image {pool.spec.image_ref}: {going} of {size} would go; nothing was changed"


def _now(proposal: Proposal) -> Iterable[str]:
    found, view = proposal.forecast.first, proposal.view
    counts = Counter(standing.state for standing in view.standings.values())
    if counts["Updated"] or counts["Updating"]:
        updated, updating = quantity(counts["Updated"], "has", "have"), quantity(counts["Updating"], "is", "are")
        yield f"{updated} the image, {updating} on their way"
    if found.stopped is not None:
        yield f"nothing goes on: {found.stopped.words}"
        return
    yield f"{found.stage.words}"
    if found.claims:
        yield f"idle, and would go at once: {some(found.claims)}"
    closed = found.closed.difference(found.reserved)
    if closed:
        yield f"closed to new jobs, so that it is their turn when their job ends: {some(sorted(closed))}"
    if found.reserved:
        yield f"closed to jobs that may run longer than those that run there: {some(sorted(found.reserved))}"


def _stages(proposal: Proposal) -> Iterable[str]:
    for part in proposal.forecast.parts:
        begins, over = _when(part.begins, proposal), _when(part.ends, proposal)
        yield f"{_name(part, proposal)}: {quantity(part.servers, 'server')}; begins {begins}, is over {over}"


def _name(part: ForecastStage | ForecastMove, proposal: Proposal) -> str:
    if part.stage in ("Canary", "CanarySoak"):
        return "canary"
    waves = proposal.view.pool.spec.upgrade_strategy.waves
    if part.stage in ("Wave", "WaveSoak") and 1 <= part.passed <= len(waves):
        return f"wave {part.passed}, {waves[part.passed - 1].share} %"
    return "the rest" if waves or proposal.view.pool.spec.upgrade_strategy.canary.count else "all"


def _when(moment: float, proposal: Proposal) -> str:
    ahead = moment - proposal.view.now.timestamp()
    return "now" if ahead < 1 else f"in {span(ahead)}"


def _completion(proposal: Proposal) -> Iterable[str]:
    forecast, now = proposal.forecast, proposal.view.now
    if not forecast.moves and not _waiting(proposal):
        yield but_for("all servers that can have it have the image", forecast.stays)
    elif forecast.completed is not None:
        yield f"{rfc3339(forecast.completed)}, in {ago(forecast.completed, now)}"
    elif forecast.is_cut:
        yield "not within a year"
    elif forecast.moves:
        last = datetime.fromtimestamp(max(move.ends for move in forecast.moves), UTC)
        yield f"not known: of some jobs nobody knows when they end; what is known is over in {ago(last, now)}"
    else:
        yield "not known"


def _waiting(proposal: Proposal) -> int:
    return sum(s.state == "Outdated" and s.excluded is None for s in proposal.view.standings.values())


def _costs(proposal: Proposal) -> Iterable[str]:
    moves = proposal.forecast.moves
    if not moves:
        return
    seconds = sum(move.ends - move.begins for move in moves)
    each = span(proposal.fleet.attempt.total_seconds())
    servers = quantity(len(moves), "server is", "servers are")
    words = f"{servers} out of use for {each} each: {seconds / 3600:.1f} server-hours"
    gpus = proposal.view.pool.spec.verification.expected.gpus
    if gpus is not None and gpus.count:
        words += f", {gpus.count * seconds / 3600:.1f} GPU-hours"
    yield f"{words}, at most {_most_at_once(moves)} at once"


def _most_at_once(moves: Iterable[ForecastMove]) -> int:
    steps = sorted((moment, change) for m in moves for moment, change in ((m.begins, 1), (m.ends, -1)))
    most = now = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most


def _ended(proposal: Proposal) -> Iterable[str]:
    for move in [move for move in proposal.forecast.moves if move.ended][:SHOWN_STAYS]:
        yield f"{some(move.jobs)} on {move.name}, {_when(move.begins, proposal)}, after a warning (the deadline)"


def _stays(proposal: Proposal) -> Iterable[str]:
    by_words: dict[str, list[str]] = {}
    for name, wait in proposal.forecast.stays.items():
        by_words.setdefault(_why_it_stays(name, wait), []).append(name)
    for words, names in list(by_words.items())[:SHOWN_STAYS]:
        yield f"{some(names)}: {words}"
    if len(by_words) > SHOWN_STAYS:
        yield f"and others for {quantity(len(by_words) - SHOWN_STAYS, 'more reason')}"


def _why_it_stays(name: str, wait: MemberWait) -> str:
    if NOT_KNOWN in wait.jobs:
        return NOT_KNOWN
    if wait.reason == "Job":
        return f"{wait.words}, of which nobody knows when it ends"
    return wait.words.replace(name, "SERVER")


def _table(proposal: Proposal, *, everything: bool) -> str:
    moves = proposal.forecast.moves
    if not moves:
        return ""
    shown = moves if everything else moves[:SHOWN]
    rows = [
        (
            number,
            move.name,
            proposal.view.standings[move.name].server.status.image_ref,
            _when(move.begins, proposal),
            _name(move, proposal),
            clip(", ".join(move.jobs), JOBS_LENGTH) or None,
        )
        for number, move in enumerate(shown, start=1)
    ]
    more = len(moves) - len(shown)
    tail = f"and {more} more: kubectl provision rollout plan {proposal.view.pool.name} --all\n" if more else ""
    return "\n" + table(HEADER, rows) + tail


def _assumptions(proposal: Proposal) -> str:
    if not proposal.forecast.moves:
        return ""
    words = (
        f"if each job ends when it is expected to, none takes its place, nothing fails, and a server takes "
        f"{span(proposal.fleet.attempt.total_seconds())}. What that means under load: provisioner rollout simulate"
    )
    return "\n" + "\n".join(textwrap.wrap(words, WIDTH)) + "\n"
