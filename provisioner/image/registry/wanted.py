"""Which images a boot host pulls, and which first. Pure.

Those that a Server of its cluster names (it runs, boots or is assigned it), then those that a NodePool names, then the
newest of each kind (recipe, distribution, architecture), as that is what a person will roll out or try next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from provisioner.api.machinery.backoff import backoff_seconds

Policy = Literal["needed", "all"]
Object = Mapping[str, Any]

FIRST_SECONDS: Final = 5.0
LONGEST_SECONDS: Final = 300.0
_SERVER, _POOL, _NEWEST, _OTHER = range(4)


@dataclass(frozen=True)
class Candidate:
    """An image that the store lacks. `rank`: how urgent it is, 0 first."""

    name: str
    rank: int


@dataclass(frozen=True)
class Attempts:
    """What has become of an image's pulls. `retry_at`: of a monotonic clock; None while nothing has failed."""

    failures: int = 0
    retry_at: float | None = None
    words: str = ""
    is_pulling: bool = False


def rank_images(
    images: Sequence[Object], named_by_server: Callable[[str], bool], named_by_pool: Callable[[str], bool]
) -> list[Candidate]:
    """All images by their urgency, the most urgent and of those the newest first.

    named_by_server, named_by_pool: whether one names an Image of that name, or digest.
    """
    newest = _newest(images)

    def rank(image: Object) -> int:
        name, digest = image["metadata"]["name"], image["spec"]["digest"]
        if named_by_server(name) or named_by_server(digest):
            return _SERVER
        if named_by_pool(name) or named_by_pool(digest):
            return _POOL
        return _NEWEST if name in newest else _OTHER

    by_age = sorted(images, key=_age_key, reverse=True)
    return sorted((Candidate(each["metadata"]["name"], rank(each)) for each in by_age), key=lambda each: each.rank)


def is_wanted(candidate: Candidate, policy: Policy) -> bool:
    return policy == "all" or candidate.rank < _OTHER


def choose_pulls(
    lacking: Iterable[Candidate], attempts: Mapping[str, Attempts], now: float, parallel: int
) -> tuple[str, ...]:
    """Which pulls to begin now, at most so many at a time together with those under way."""
    room = parallel - sum(each.is_pulling for each in attempts.values())
    ready = [
        each.name
        for each in lacking
        if (known := attempts.get(each.name, Attempts())).is_pulling is False
        and (known.retry_at is None or known.retry_at <= now)
    ]
    return tuple(ready[: max(room, 0)])


def failed(before: Attempts, words: str, now: float, *, after_seconds: float, spread: float) -> Attempts:
    """After an attempt that failed. `spread`: by chance, from 0 to 1, lest all boot hosts come back at once."""
    failures = before.failures + 1
    backoff = backoff_seconds(failures, first=FIRST_SECONDS, cap=LONGEST_SECONDS, jitter=lambda: spread)
    wait = max(backoff, min(after_seconds, 3600.0))
    return replace(before, failures=failures, retry_at=now + wait, words=words, is_pulling=False)


def words_of(name: str, attempts: Mapping[str, Attempts], wanted: Collection[str], registry: str) -> str:
    """What the image waits for here, for its condition: the same words as long as nothing changes."""
    known = attempts.get(name, Attempts())
    if name not in wanted:
        return f"nothing names it, so it is not pulled from {registry}"
    if known.is_pulling and not known.words:
        return f"it is being pulled from {registry}"
    if known.words:
        return f"pulling it is tried again and again: {known.words}"
    return f"it waits for its turn to be pulled from {registry}"


def _newest(images: Sequence[Object]) -> frozenset[str]:
    found: dict[tuple[str, str, str], Object] = {}
    for image in sorted(images, key=_age_key):
        spec = image["spec"]
        found[spec["recipe"], spec["distribution"], spec["architecture"]] = image
    return frozenset(image["metadata"]["name"] for image in found.values())


def _age_key(image: Object) -> tuple[str, str]:
    """Times of the API server are all in one form, in which later is larger."""
    return str(image["metadata"].get("creationTimestamp") or ""), image["metadata"]["name"]
