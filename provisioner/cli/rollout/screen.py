"""`rollout status`: one screen about one pool. Pure: the same objects give the same words.

gpu moves from Image gpu-node-1 to gpu-node-2, since 2 h 5 min

stage       canary: 0 of 1 server in use with the new image
servers     8: 1 on its way, 6 wait, 1 failed
            [>>>>>>>.............................................!!!!!!!]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from provisioner.api import NodePool
from provisioner.api.machinery.meta import parse_time
from provisioner.api.machinery.wording import ago, clip, plain, quantity, some
from provisioner.api.pools.rollout_status import RolloutStatus
from provisioner.api.pools.upgrade_strategy import UpgradeStrategy
from provisioner.cli.kubectl.printing import screen, table
from provisioner.cli.rollout.pool_view import PoolView
from provisioner.cli.why.maintenance import wait_words
from provisioner.rollout.standing import MemberFacts
from provisioner.rollout.wait import WAIT_WORDS

BAR: Final = 60
SHOWN_SERVERS: Final = 30
SHOWN_BLOCKERS: Final = 8
SHOWN_FAILURES: Final = 5
SHOWN_ROLLOUTS: Final = 8
WAITS_LENGTH: Final = 70
HEADER: Final = ("SERVER", "STATE", "RUNS", "ASSIGNED", "MAINTENANCE", "WAITS-FOR")


@dataclass(frozen=True)
class Appearance:
    """How a state is shown: in words, of several servers, in one character, and in colour."""

    word: str
    many: str
    mark: str
    colour: str


LOOKS: Final[Mapping[str, Appearance]] = {
    "Updated": Appearance("updated", "updated", "#", "green"),
    "Updating": Appearance("on its way", "on their way", ">", "yellow"),
    "Outdated": Appearance("waits", "wait", ".", "blue"),
    "Excluded": Appearance("left alone", "left alone", "x", "magenta"),
    "Failed": Appearance("failed", "failed", "!", "red"),
    "Down": Appearance("out of use", "out of use", "-", "white"),
    "Absent": Appearance("not joined", "not joined", "_", "white"),
}
"""By what `state_of` says, in the order of the bar."""
ORDER: Final = ("Failed", "Updating", "Outdated", "Down", "Absent", "Excluded", "Updated")


def state_of(standing: MemberFacts) -> str:
    """What the eye needs: one of `LOOKS`."""
    if standing.is_told:
        return "Updating"
    return "Excluded" if standing.excluded is not None else standing.state


def count_looks(standings: Iterable[MemberFacts]) -> Counter[str]:
    return Counter(state_of(standing) for standing in standings)


def render_rollout(view: PoolView, *, everything: bool = False) -> str:
    """The screen; ends with a newline. everything: all servers, not the first of them."""
    shown = ((label, [*entries, *_bar(view)] if label == "servers" else entries) for label, entries in sections(view))
    return screen(headline(view), shown) + "\n" + _table(view, everything=everything)


def sections(view: PoolView) -> tuple[tuple[str, Iterable[str]], ...]:
    """All there is to say under the headline; what has no entries is not shown."""
    return (
        ("stage", _stage(view)),
        ("servers", _servers(view)),
        ("expected", _expected(view)),
        ("waits", _waits(view)),
        ("jobs", _jobs(view)),
        ("failed", _failures(view)),
        ("you can", what_one_can_do(view)),
    )


def headline(view: PoolView) -> str:
    """What the pool is doing, in one sentence."""
    name, wanted, rollout = view.pool.name, view.pool.spec.image_ref, view.rollout
    if rollout is None:
        if not view.is_observed:
            return f"{name} shall run Image {wanted}; the rollout's controller has not taken it up yet"
        return f"{name} runs Image {wanted}; it was never moved to another one"
    goes_back = rollout.previous_image_ref == wanted
    came = f" from Image {rollout.previous_image_ref}" if rollout.previous_image_ref and not goes_back else ""
    if rollout.completed_time is not None:
        done = ago(parse_time(rollout.completed_time), view.now)
        left = sum(wait.count for wait in rollout.waits)
        but_for = f", but for {quantity(left, 'server')}" if left else ""
        return f"{name} runs Image {wanted}: its rollout{came} was complete {done} ago{but_for}"
    since = ago(parse_time(rollout.started_time), view.now)
    words = f"{name} {'goes back' if goes_back else 'moves'}{came} to Image {wanted}, since {since}"
    if rollout.stopped is not None:
        return f"{words}: STOPPED, a person must decide"
    return f"{words}: paused" if is_paused(view) else words


def render_under_way(pools: Iterable[NodePool], now: datetime) -> str:
    """A line for each rollout that is not complete, those that stopped themselves first. Each ends with a newline."""
    views = (PoolView(pool=each, image=None, standings={}, nodes={}, maintenances={}, now=now) for each in pools)
    known = ((view, view.rollout) for view in views)
    moving = [(view, found) for view, found in known if found is not None and found.completed_time is None]
    moving.sort(key=lambda each: (each[1].stopped is None, each[0].pool.name))
    lines = [_under_way(view, rollout) for view, rollout in moving[:SHOWN_ROLLOUTS]]
    if len(moving) > SHOWN_ROLLOUTS:
        lines.append(f"and {quantity(len(moving) - SHOWN_ROLLOUTS, 'more rollout')}: kubectl provision rollout status")
    return "".join(f"{plain(line)}\n" for line in lines)


def _under_way(view: PoolView, rollout: RolloutStatus) -> str:
    status = view.pool.status
    words = f"{headline(view)}; {status.updated or 0} of {quantity(status.desired or 0, 'server')} updated"
    return f"{words}; {clip(rollout.message, WAITS_LENGTH)}" if rollout.message else words


def is_paused(view: PoolView) -> bool:
    """Whether a person holds it up."""
    strategy = view.pool.spec.upgrade_strategy
    return strategy.paused or bool(closed_caps(strategy))


def closed_caps(strategy: UpgradeStrategy) -> list[tuple[str, object]]:
    """Caps that let nothing move, by the names of their fields."""
    caps = (("maxParallel", strategy.max_parallel), ("maxUnavailable", strategy.max_unavailable))
    return [(field, amount) for field, amount in caps if amount in (0, "0", "0%")]


def _stage(view: PoolView) -> Iterable[str]:
    rollout = view.rollout
    if rollout is not None and rollout.message and (rollout.completed_time is None or rollout.waits):
        yield rollout.message
    if not view.is_observed:
        yield (
            "what the NodePool says was changed, and no controller has taken it up yet: if that lasts, look at the "
            "controller (provisioner controller, group rollout)"
        )


def count_words(counts: Mapping[str, int]) -> str:
    """`8: 1 updated, 6 wait, 1 failed`."""
    said = [quantity(counts[state], look.word, look.many) for state, look in LOOKS.items() if counts.get(state)]
    return f"{sum(counts.values())}: {', '.join(said)}" if said else "none"


def _servers(view: PoolView) -> Iterable[str]:
    yield count_words(count_looks(view.standings.values()))


def _bar(view: PoolView) -> Iterable[str]:
    counts = count_looks(view.standings.values())
    if counts:
        yield f"[{draw_bar(counts)}]"


def draw_bar(counts: Mapping[str, int], width: int = BAR) -> str:
    """A bar of the fleet; whoever is there has a character of it."""
    total = sum(counts.values())
    cells = {state: max(1, counts[state] * width // total) for state in LOOKS if counts.get(state)}
    while cells and sum(cells.values()) != width:
        largest = max(cells, key=lambda state: cells[state])
        cells[largest] += 1 if sum(cells.values()) < width else -1
    return "".join(LOOKS[state].mark * count for state, count in cells.items())


def _expected(view: PoolView) -> Iterable[str]:
    rollout = view.rollout
    if rollout is None or rollout.completed_time is not None:
        return
    if rollout.expected_time is None:
        if rollout.stopped is None and not is_paused(view):
            yield f"not known yet; what would happen: kubectl provision rollout plan {view.pool.name}"
        return
    expected = parse_time(rollout.expected_time)
    side = f"in {ago(expected, view.now)}" if expected > view.now else f"{ago(expected, view.now)} ago"
    yield f"complete at {rollout.expected_time}, {side}, if jobs end when they are expected to and nothing fails"


def _waits(view: PoolView) -> Iterable[str]:
    for wait in sorted(view.rollout.waits if view.rollout is not None else (), key=lambda w: -w.count):
        yield f"{wait.count} {WAIT_WORDS.get(wait.reason, wait.reason)}"


def _jobs(view: PoolView) -> Iterable[str]:
    blockers = view.rollout.blockers if view.rollout is not None else ()
    for blocker in blockers[:SHOWN_BLOCKERS]:
        servers = quantity(blocker.servers, "server waits", "servers wait")
        yield f"{blocker.job}: {servers} for it, {_end(blocker.expected_time, view)}"
    if len(blockers) > SHOWN_BLOCKERS:
        yield f"and {len(blockers) - SHOWN_BLOCKERS} more"


def _end(text: str | None, view: PoolView) -> str:
    if text is None:
        return "and nobody knows when it ends"
    end = parse_time(text)
    if end <= view.now:
        return f"and it should have ended {ago(end, view.now)} ago"
    return f"and it ends in {ago(end, view.now)} at the latest"


def _failures(view: PoolView) -> Iterable[str]:
    found = view.named("Failed")
    for standing in found[:SHOWN_FAILURES]:
        failure = standing.failure
        name = standing.server.name
        if failure is None:
            yield f"{name} is out of use with the image: kubectl provision why {name}"
            continue
        record = f" (Maintenance {failure.maintenance_ref})" if failure.maintenance_ref else ""
        yield f"{name}, {ago(parse_time(failure.time), view.now)} ago: {failure.message}{record}"
    if len(found) > SHOWN_FAILURES:
        yield f"and {len(found) - SHOWN_FAILURES} more, in the table"


def what_one_can_do(view: PoolView) -> Iterable[str]:
    """The commands for the state that it is in; none where it goes on by itself."""
    name, rollout, strategy = view.pool.name, view.rollout, view.pool.spec.upgrade_strategy
    command = "kubectl provision rollout"
    if rollout is None or rollout.completed_time is not None:
        return
    if rollout.stopped is not None:
        names = [standing.server.name for standing in view.named("Failed")]
        if names:
            yield f"see why: kubectl provision why {' '.join(names[:SHOWN_FAILURES])}"
        yield f"go back to Image {rollout.previous_image_ref}: {command} undo {name}"
        yield f"or try again what failed: {command} resume {name}"
        yield f"or name a better image: {command} start {name} --image IMAGE"
        return
    if strategy.paused:
        yield f"let it go on: {command} resume {name}; or go back: {command} undo {name}"
    for field, amount in closed_caps(strategy):
        patch = f'{{"spec":{{"upgradeStrategy":{{"{field}":null}}}}}}'
        words = f"spec.upgradeStrategy.{field} is {amount}; the default instead"
        yield f"{words}: kubectl patch nodepool {name} --type=merge -p '{patch}'"
    names = [standing.server.name for standing in view.named("Failed")]
    if names:
        words = "has failed and keeps its place" if len(names) == 1 else "have failed and keep their places"
        yield f"{some(names)} {words}: kubectl provision why {names[0]}; or try again: {command} resume {name}"


def _table(view: PoolView, *, everything: bool) -> str:
    ordered = sorted(view.standings.values(), key=lambda standing: ORDER.index(state_of(standing)))
    shown = ordered if everything else ordered[:SHOWN_SERVERS]
    rows = [server_row(view, standing) for standing in shown]
    if not rows:
        return "no servers: none that is accepted names this pool\n"
    more = len(ordered) - len(shown)
    tail = f"and {more} more: kubectl provision rollout status {view.pool.name} --all\n" if more else ""
    return table(HEADER, rows) + tail


def server_row(view: PoolView, standing: MemberFacts) -> tuple[str | None, ...]:
    """One server: where it stands, what it runs and boots next, what is done to it, and what that waits for."""
    status, name = standing.server.status, standing.server.name
    current = view.maintenance_of(name)
    phase = f"{current.name}/{current.status.phase or 'New'}" if current is not None else None
    return (
        name,
        LOOKS[state_of(standing)].word,
        status.image_ref,
        status.assigned_image_ref,
        phase,
        clip(server_waits(view, standing), WAITS_LENGTH),
    )


def server_waits(view: PoolView, standing: MemberFacts) -> str:
    """In words what this one server waits for; nothing where it waits for nothing."""
    current = view.maintenance_of(standing.server.name)
    if standing.state == "Failed" and standing.failure is not None:
        return standing.failure.message
    if standing.state == "Updated":
        return ""
    if standing.excluded is not None:
        return standing.excluded.words
    return wait_words(standing.server, current) or _pool_words(view.rollout, standing)


def _pool_words(rollout: RolloutStatus | None, standing: MemberFacts) -> str:
    return rollout.message if rollout is not None and standing.state == "Outdated" else ""
