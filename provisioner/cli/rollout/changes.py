"""What people decide about a pool's rollout, as a change of its NodePool's spec. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from provisioner.api import Image, NodePool
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.machinery.wording import quantity, some, span
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.rollout.pool_view import PoolView, with_image
from provisioner.cli.rollout.screen import closed_caps
from provisioner.rollout.course import set_course
from provisioner.rollout.standing import MemberFacts
from provisioner.rollout.wait import count_left
from provisioner.rules.bootability import PUBLISH, find_distrusted

IMAGE_REF: Final = "/spec/imageRef"
PAUSED: Final = "/spec/upgradeStrategy/paused"
RETRIED: Final = "/spec/upgradeStrategy/retriedTime"


@dataclass(frozen=True, kw_only=True)
class PoolChange:
    """fields: what is written, by JSON pointer; nothing if it is so already. words: what is told, the first line first.
    question: what a person is asked before; None if nobody needs to be."""

    words: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    question: str | None = None


def check_image(pool: NodePool, name: str, image: Image | None, standings: Iterable[MemberFacts]) -> None:
    """Raises: BadInput for an Image that nobody could boot."""
    unchanged = f"NodePool {pool.name} is not changed"
    if image is None:
        raise BadInput(
            f"{unchanged}: there is no Image {name}, expected one that is published",
            hint=f"kubectl get images; or {PUBLISH}",
        )
    distrusted = find_distrusted(image)
    if distrusted is not None:
        raise BadInput(f"{unchanged}: {distrusted.message}", hint=distrusted.remedy)
    available = find_condition(image.status.conditions, "Available")
    if available is not None and available.status == "False":
        raise BadInput(
            f"{unchanged}: Image {name} is not Available, expected it to be: {available.reason}: {available.message}",
            hint=f"on each boot host: {PUBLISH}; kubectl get image {name} -o yaml says which lacks it",
        )
    others = [s.server.name for s in standings if s.server.spec.architecture != image.spec.architecture]
    if others:
        raise BadInput(
            f"{unchanged}: Image {name} is for {image.spec.architecture}, and {some(others)} is not",
            hint="name an image for the pool's servers, or put the others into a pool of their own",
        )


def begin(view: PoolView, name: str, image: Image | None) -> PoolChange:
    """The pool shall run that image, and its rollout is not paused. Raises: BadInput."""
    pool = view.pool
    check_image(pool, name, image, view.standings.values())
    fields: dict[str, Any] = {}
    if pool.spec.upgrade_strategy.paused:
        fields[PAUSED] = False
    if pool.spec.image_ref == name:
        return _again(view, fields)
    fields[IMAGE_REF] = name
    wanted = with_image(view, name, image)
    words = [f"moves from Image {pool.spec.image_ref} to {name}: {_share(wanted)}"]
    words += [f"first: {_first(wanted)}", *_held_back(wanted)]
    if PAUSED in fields:
        words.append("it was paused, and is not any more")
    return PoolChange(words=tuple(words), fields=fields)


def _again(view: PoolView, fields: Mapping[str, Any]) -> PoolChange:
    pool, rollout = view.pool, view.rollout
    words = [f"wants Image {pool.spec.image_ref} already"]
    if fields:
        words[0] += "; it was paused, and is not any more"
    if rollout is not None and rollout.completed_time is not None:
        words.append(f"its rollout is {rollout.message}")
    elif rollout is not None and rollout.stopped is not None:
        words.append(f"its rollout stopped: {rollout.stopped.message}")
    elif rollout is not None and rollout.message and not fields:
        words.append(rollout.message)
    return PoolChange(words=tuple(words), fields=fields)


def pause(view: PoolView) -> PoolChange:
    """No further server begins."""
    if view.pool.spec.upgrade_strategy.paused:
        return PoolChange(words=("is paused already",))
    on_their_way = view.named("Updating")
    words = ["is paused: no further server begins"]
    if on_their_way:
        names = some([standing.server.name for standing in on_their_way])
        words.append(f"{names}: on the way already, and to its end")
    if view.rollout is None or view.rollout.completed_time is not None:
        words.append("no rollout is under way; one that begins by a change of spec.imageRef waits")
    return PoolChange(words=tuple(words), fields={PAUSED: True})


def resume(view: PoolView) -> PoolChange:
    """The rollout goes on; what failed is tried again, if it stopped for that."""
    strategy, rollout = view.pool.spec.upgrade_strategy, view.rollout
    fields: dict[str, Any] = {PAUSED: False} if strategy.paused else {}
    stopped = rollout.stopped if rollout is not None else None
    failed = view.named("Failed")
    if stopped is None and (strategy.paused or not failed):
        said = "goes on" if fields else "is neither paused nor stopped"
        return PoolChange(words=(said, *_held_back(view), *_keep_their_places(failed)), fields=fields)
    latest = [failure.time for failure in (s.failure for s in failed) if failure is not None]
    latest += [stopped.time] if stopped is not None else []
    moment = max([view.now, *(parse_time(time) + timedelta(seconds=1) for time in latest)])
    fields[RETRIED] = rfc3339(moment)
    words = ("goes on", *(f"  {line}" for line in _tried_again(failed)), *_held_back(view))
    names = some([standing.server.name for standing in failed]) if failed else "nothing"
    reason = f" ({stopped.reason})" if stopped is not None else ""
    question = f"NodePool {view.pool.name} stopped{reason}: try {names} again with Image {view.pool.spec.image_ref}?"
    return PoolChange(words=words, fields=fields, question=question)


def _tried_again(failed: Iterable[MemberFacts]) -> Iterable[str]:
    for standing in failed:
        name = standing.server.name
        if standing.in_use:
            yield f"{name} is tried again in its turn"
        else:
            yield f"{name} is out of use and counts until it is back: kubectl provision why {name}"


def _keep_their_places(failed: Iterable[MemberFacts]) -> Iterable[str]:
    names = [standing.server.name for standing in failed]
    if names:
        yield f"{some(names)} failed, and counts as out of use until a person decides: resume once more tries it again"


def find_way_back(pool: NodePool) -> str | None:
    """The image that the pool had before: what its rollout came from, else what one brought everywhere last."""
    rollout, wanted = pool.status.rollout, pool.spec.image_ref
    if rollout is not None and rollout.image_ref == wanted and rollout.previous_image_ref not in (None, wanted):
        return rollout.previous_image_ref
    completed = (record.image_ref for record in pool.status.history if record.outcome == "Completed")
    return next((name for name in completed if name != wanted), None)


def undo(view: PoolView, name: str, image: Image | None) -> PoolChange:
    """The pool shall run that image, which it had before. Raises: BadInput."""
    pool = view.pool
    if pool.spec.image_ref == name:
        return begin(view, name, image)
    check_image(pool, name, image, view.standings.values())
    back = with_image(view, name, image)
    fields: dict[str, Any] = {IMAGE_REF: name} | ({PAUSED: False} if pool.spec.upgrade_strategy.paused else {})
    stayed = [s for s in back.standings.values() if s.state == "Updated"]
    going = [s for s in back.standings.values() if s.state == "Outdated" and s.excluded is None]
    words = [
        f"goes back from Image {pool.spec.image_ref} to {name}: {_count(going)} to go back, {len(stayed)} never left"
    ]
    under_way = view.named("Updating")
    if under_way:
        names = some([s.server.name for s in under_way])
        words.append(f"{names}: on the way; who has begun to boot arrives, and then goes back")
    broken = [s.server.name for s in back.standings.values() if s.state in ("Failed", "Down", "Absent")]
    if broken:
        words.append(
            f"{some(broken)}: out of use; have it booted: kubectl provision reboot {' '.join(broken[:8])} --now"
        )
    if PAUSED in fields:
        words.append("it was paused, and is not any more")
    return PoolChange(words=(*words, *_held_back(back)), fields=fields)


def _count(standings: Iterable[MemberFacts]) -> str:
    return quantity(len(list(standings)), "server has", "servers have")


def _share(view: PoolView) -> str:
    going = [s for s in view.standings.values() if s.state == "Outdated" and s.excluded is None]
    alone = {name: s.excluded for name, s in view.standings.items() if s.excluded is not None}
    words = f"{len(going)} of {len(view.standings)} servers go there, as their jobs end"
    return f"{words}; left alone: {count_left(alone)}" if alone else words


def _first(view: PoolView) -> str:
    canary = view.pool.spec.upgrade_strategy.canary
    course = set_course(view.pool, list(view.standings.values()), view.now)
    if course.rollout is not None and course.rollout.passed:
        return "all may go at once, for the image has passed its canary here before"
    if not canary.count:
        return "no canary"
    where = f" with {canary.selector}" if canary.selector else ""
    servers = quantity(canary.count, "server")
    return f"{servers}{where} as canary, in use for {span(canary.soak_seconds)} before others follow"


def _held_back(view: PoolView) -> Iterable[str]:
    for name, amount in closed_caps(view.pool.spec.upgrade_strategy):
        yield f"nothing moves as long as spec.upgradeStrategy.{name} is {amount}"
