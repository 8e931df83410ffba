"""The frame around a controller's decision: observe → decide → apply.

A controller brings its decision and the declaration of what it owns. What all of them do around these is written here:
they wait for their caches and for their own writes, leave alone what is gone or going, write what they own where it is
another than before, under the resourceVersion that was decided on, put off what is only words, record Events once what
they tell is written, and look again in time.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, TypeVar

from provisioner.api.machinery.codec import decode_shared, to_json
from provisioner.api.machinery.errors import NotFound
from provisioner.api.machinery.meta import Condition, Resource
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Reconcile, Settling, requeue_after
from provisioner.cluster.events import Events, EventType, Happened
from provisioner.cluster.own_writes import BEHIND_SECONDS, OwnWrites
from provisioner.cluster.resources import ResourceType, of
from provisioner.cluster.source import Object, Source

UNSYNCED_SECONDS: Final = 0.2
"""After so long a controller looks again whether its caches are complete."""


def when_synced(caches: Iterable[Source], reconcile: Reconcile) -> Reconcile:
    """`reconcile`, once the caches are complete: what is not in one yet is not missing."""
    needed = tuple(caches)

    def gated(key: str) -> float | None:
        return reconcile(key) if all(each.has_synced for each in needed) else UNSYNCED_SECONDS

    return gated


@dataclass(frozen=True, kw_only=True)
class Owned:
    """The part of the status of a kind that one field manager owns: which fields, and which types of condition.

    also: fields that it writes along with these, and by which alone nothing is written: another one says more of them.
    """

    kind: type[Resource]
    manager: str
    fields: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def differs(self, body: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        """Whether it is not `wanted` in the object `body`. `wanted` holds all of it that is to be there, as JSON.

        Raises: ValueError, if `wanted` has more than is declared: what changes in that would never be written.
        """
        types = {each["type"] for each in wanted.get("conditions", ())}
        if more := wanted.keys() - {*self.fields, *self.also, "conditions"} | types - {*self.conditions}:
            raise ValueError(
                f"{self.manager} owns no {', '.join(sorted(more))} in the status of a {self.kind.KIND.kind}"
            )
        status: Any = decode_shared(self.kind, body).status  # type: ignore[attr-defined]  # every kind of ours has one
        written, expected = to_json(status), to_json(type(status)()) | dict(wanted)
        found = [each for each in written.get("conditions", ()) if each["type"] in self.conditions]
        by_type = {each["type"]: each for each in found}
        return (
            any(written.get(field) != expected.get(field) for field in self.fields)
            or by_type != {each["type"]: each for each in wanted.get("conditions", ())}
            or len(found) != len(by_type)
        )

    def keeps(self, type_: str, body: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
        """Whether condition `type_` keeps its status by what is wanted; one that is not there is Unknown."""
        status: Any = decode_shared(self.kind, body).status  # type: ignore[attr-defined]
        before = {each.type: str(each.status) for each in status.conditions}
        after = {each["type"]: str(each["status"]) for each in wanted["conditions"]}
        return before.get(type_, "Unknown") == after.get(type_, "Unknown")


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a controller says of an object: `status`, all that it owns of it, as JSON; None: it stays as it is.

    events: recorded once the status is written. requeue_after_seconds: when to look again, if before the next resync.
    """

    status: Mapping[str, Any] | None = None
    events: tuple[Happened, ...] = ()
    requeue_after_seconds: float | None = None


S = TypeVar("S", bound=Said)


class Reconciler(ABC):
    """Brings one object at a time closer to what is wanted, by its key. Usable from several threads."""

    def __init__(self, source: Source, *, caches: Iterable[Source], own: OwnWrites) -> None:
        """source: the objects. caches: all that is read, with `source`. own: what was written, by key."""
        self._source = source
        self._caches = tuple(caches)
        self.own = own

    def reconcile(self, key: str) -> float | None:
        """Returns: after how many seconds to look again, if so. Raises: Retryable, NeedsHuman, NeedsLane."""
        if not all(each.has_synced for each in self._caches):
            return UNSYNCED_SECONDS  # what is not in a cache yet is not missing
        body = self._source.get(key)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return self.leave(key, body)
        return self.advance(key, body) if self.shows_own_writes(key) else BEHIND_SECONDS

    @abstractmethod
    def advance(self, key: str, body: Object) -> float | None:
        """Do what is to be done about the object, as the cache has it. Returns, raises: as `reconcile`."""

    def leave(self, key: str, body: Object | None) -> float | None:
        """The object is gone, or going. Returns, raises: as `reconcile`."""
        return None

    def shows_own_writes(self, key: str) -> bool:
        """Whether the caches show what was written for the object of `key`, or later."""
        return self.own.are_seen(key, lambda type_, name: self.look(key, type_, name))

    def look(self, key: str, type_: ResourceType, name: str) -> Object | None:
        """An object that was written for the one of `key`, as the caches have it: else than that one, if `type_` is
        not its own."""
        return self._source.get(key)


class StatusReconciler(Reconciler, Generic[S]):
    """A reconciler that says something of each object, in the part of its status that it owns."""

    owned: ClassVar[Owned]

    def __init__(
        self,
        cluster: Cluster,
        source: Source,
        events: Events,
        *,
        caches: Iterable[Source],
        now: Callable[[], datetime],
        rng: random.Random | None = None,
        settle_seconds: float = 0.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """settle_seconds: for how long what is only words may wait for what changes soon after it."""
        super().__init__(source, caches=caches, own=OwnWrites(now))
        self._cluster = cluster
        self._events = events
        self._now = now
        self._rng = rng or random.SystemRandom()
        self._settling = Settling(settle_seconds, monotonic)

    @abstractmethod
    def decide(self, key: str, body: Object) -> S | float | None:
        """What to say of the object, by the caches; or after how many seconds that may be decided, if so.

        What must be there before it can be said, such as a claim, is made here, too.
        """

    def is_words(self, body: Object, said: S) -> bool:
        """Whether nobody waits for what is new: it may be put off."""
        return False

    def confirm(self, body: Object, said: S) -> S:
        """Before it is written: what cannot be taken back is decided once more on objects read past the caches."""
        return said

    def tell(self, body: Object, said: S) -> None:
        """Tell what was written: by default, its Events about the object."""
        for event in said.events:
            self._events.record(body, event.type, event.reason, event.message)

    def advance(self, key: str, body: Object) -> float | None:
        said = self.decide(key, body)
        if not isinstance(said, Said):
            return said
        spoken = self.say(key, body, said)
        return spoken.rest_seconds or self.again(spoken.said)

    def say(self, key: str, body: Object, said: S) -> Spoken[S]:
        """Write what is said if it is another than before, and tell it. Raises: Conflict, if the object has changed."""
        if not self._is_new(body, said):
            self._settling.is_written(key)
            return Spoken(said)
        if self.is_words(body, said) and (rest := self._settling.rest(key)) > 0:
            return Spoken(said, rest_seconds=rest)
        said = self.confirm(body, said)
        if not self._is_new(body, said):
            return Spoken(said)
        try:
            written = self._write(key, body, said.status or {})
        except NotFound:
            return Spoken(said, is_gone=True)  # the cache will say so
        self._settling.is_written(key)
        self.tell(body, said)
        return Spoken(said, written)

    def again(self, said: S) -> float:
        """After how many seconds to look again."""
        return requeue_after(said.requeue_after_seconds, self._rng)

    def _is_new(self, body: Object, said: S) -> bool:
        return said.status is not None and self.owned.differs(body, said.status)

    def _write(self, key: str, body: Object, status: Mapping[str, Any]) -> Object:
        # Under the resourceVersion always: whoever led before must not bring back what was replaced.
        metadata, type_ = body["metadata"], of(self.owned.kind)
        with self.own.written_on(key, type_, body):
            written = self._cluster.apply_status(
                self.owned.kind,
                metadata["name"],
                status,
                manager=self.owned.manager,
                resource_version=metadata["resourceVersion"],
                namespace=metadata.get("namespace"),
            )
        self.own.note(key, type_, written)
        return written


@dataclass(frozen=True)
class Spoken(Generic[S]):
    """What became of what was to be said: `said`, as it was confirmed; the object as it was written, if it was; for how
    many seconds it is put off; and whether the object was deleted meanwhile."""

    said: S
    written: Object | None = None
    rest_seconds: float = 0.0
    is_gone: bool = False


def news_of(before: Condition | None, after: Condition, *, is_calm: Callable[[str], bool]) -> tuple[Happened, ...]:
    """An Event where a condition has another status or reason: a Warning if it is not True and its reason not calm."""
    if before is not None and (before.status, before.reason) == (after.status, after.reason):
        return ()
    type_: EventType = "Normal" if after.status == "True" or is_calm(after.reason) else "Warning"
    return (Happened(type=type_, reason=after.reason, message=after.message),)
