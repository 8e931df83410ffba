"""The controller's only way out: counts what it does, and goes wrong on command.

Every write to the API server and every act through Workloads is one effect, numbered from 1 in each run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from provisioner.api.machinery.errors import Retryable
from provisioner.outbound.lanes import Lanes, NeedsLane
from tests.maintenance.chaos.story import SimulatedCrash, Story

MOST_EFFECTS_AT_ONCE: Final = 500
"""More at one moment of the clock is a loop that would flood the API server."""
MOST_FAILURES: Final = 700
"""In a row, of one effect: more is a loop that nothing ends. A watch is lost for ten minutes at most, and what meets a
conflict is tried each second."""
WRITES: Final = (
    "create",
    "replace",
    "patch",
    "patch_seen",
    "strategic_patch",
    "apply",
    "apply_status",
    "delete",
    "evict",
)
ACTS: Final = ("warn", "close", "evict", "reopen", "reserve", "unreserve")


@dataclass(frozen=True)
class Effect:
    """One thing that a controller did or was about to do."""

    number: int
    words: str


Trigger = Callable[[Effect, str], None]
"""Called with an effect, once "before" and once "after" it happens; what it raises reaches the controller."""


class Meter:
    """Numbers the effects of all controllers of a run, and calls `trigger` around each."""

    def __init__(self, story: Story, after_each: Callable[[], None]) -> None:
        self._story, self._after_each = story, after_each
        self.effects: list[Effect] = []
        self._at_this_moment = (0.0, 0)
        self._failures: Counter[str] = Counter()
        self.trigger: Trigger = lambda effect, moment: None

    def around(self, who: str, words: str, act: Callable[[], Any]) -> Any:
        effect = Effect(len(self.effects) + 1, words)
        self.effects.append(effect)
        moment, count = self._at_this_moment
        self._at_this_moment = (self._story.moment, count + 1 if moment == self._story.moment else 1)
        if count > MOST_EFFECTS_AT_ONCE:
            self._story.must(False, f"{who} did {count} things without time passing, the last: {words}")
            self._story.judge()
        try:
            self.trigger(effect, "before")
            result = act()
            self._story.tell(who, f"#{effect.number} {words}")
            self._after_each()
            self.trigger(effect, "after")
        except (Exception, SimulatedCrash) as error:
            self._story.tell(who, f"#{effect.number} {words}: {type(error).__name__}: {error}")
            self._failures[f"{who}: {words}"] += 1
            if self._failures[f"{who}: {words}"] > MOST_FAILURES:
                self._story.must(False, f"{who} does {words} again and again, in vain: {error}")
                self._story.judge()
            raise
        self._failures.pop(f"{who}: {words}", None)
        return result


class ChaosClient:
    """A Cluster or a Workloads whose effects go through a Meter. `is_alive` False: its process is gone."""

    def __init__(self, inner: Any, who: str, meter: Meter, effects: tuple[str, ...]) -> None:
        self._inner, self._who, self._meter, self._effects = inner, who, meter, effects

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in self._effects:
            return found

        def counted(*args: Any, **kwargs: Any) -> Any:
            return self._meter.around(self._who, describe(name, args, kwargs), lambda: found(*args, **kwargs))

        return counted

    def with_timeout(self, seconds: float) -> ChaosClient:
        return self


class Reachable:
    """What reaches the API server unless that is away. spare: what needs no API server."""

    def __init__(self, inner: Any, is_away: Callable[[], bool], spare: tuple[str, ...] = ()) -> None:
        self._inner, self._is_away, self._spare = inner, is_away, spare

    def __getattr__(self, name: str) -> Any:
        if name not in self._spare and self._is_away():
            raise Retryable("no answer (the API server is away)")
        return getattr(self._inner, name)


class InLanes:
    """A Workloads whose slurmrestd has a thread of its own: what waits for it is begun anew there."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._lanes = Lanes("slurmrestd", lambda _: None)
        self._is_in_lane = False

    def begin(self, work: Callable[[], Any], again: Callable[[], None]) -> Any:
        """Do `work`; where it needs the lane, anew and in there, after `again`."""
        try:
            return work()
        except NeedsLane:
            again()
            self._is_in_lane = True
            try:
                return work()
            finally:
                self._is_in_lane = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in ("look", "reserved", *ACTS):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            waits = name != "look" or kwargs.get("fresh", True)
            if waits and self._inner.slurm and not self._is_in_lane:
                raise NeedsLane(self._lanes, "slurm")
            return found(*args, **kwargs)

        return call


def describe(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A write in one line."""
    parts = []
    if method == "patch_seen":
        type_, body, changes = args
        parts = [str(type_), f"{body['metadata']['name']}:", *(_changed(*change) for change in changes.items())]
        args = ()
    for value in args:
        if isinstance(value, type):
            parts.append(value.__name__)
        elif isinstance(value, dict):
            parts.append(_brief(value))
        elif hasattr(value, "spec"):
            parts.append(str(value.name))
        else:
            parts.append(str(value))
    more = [
        f"{key}={_brief(v) if isinstance(v, dict) else v}" for key, v in kwargs.items() if key in ("spare", "force")
    ]
    if kwargs.get("resource_version"):
        more.append("if unchanged")
    return " ".join((method, *parts, *more))


def _changed(path: str, value: Any) -> str:
    keys = [taint["key"] for taint in value] if isinstance(value, list) else value
    return f"{path.rpartition('/')[2]} {keys}"


def _brief(body: dict[str, Any]) -> str:
    """The parts of a body that tell what is going on."""
    metadata, status = body.get("metadata") or {}, body.get("status") or body
    said = [str(metadata["name"])] if "name" in metadata else []
    if "phase" in status:
        timeline = status.get("timeline") or [{}]
        said.append(f"phase {status['phase']} ({timeline[-1].get('reason')})")
    if "taints" in (body.get("spec") or {}):
        said.append(f"taints {[taint['key'] for taint in body['spec']['taints'] or ()]}")
    if metadata.get("annotations"):
        said.append(f"annotations {metadata['annotations']}")
    if "finalizers" in metadata:
        said.append(f"finalizers {metadata['finalizers']}")
    if "phase" not in status and status.get("conditions"):
        said.append(f"conditions {[(c.get('type'), c.get('status')) for c in status['conditions']]}")
    return "{" + ", ".join(said) + "}"
