"""What stages read of an informer, as an interface: `provisioner.cluster.informer.Informer`, or a test's own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, TypeVar

from provisioner.api.machinery.codec import decode_shared
from provisioner.api.machinery.meta import Resource

R = TypeVar("R", bound=Resource)
T = TypeVar("T")
Object = dict[str, Any]
Json = Mapping[str, Any]
"""The same, to be read only."""
Watcher = Callable[[str, Object | None, Object | None], None]
"""Called with key, old and new; old None: it appeared; new None: it is gone."""

KeysOf = Callable[[Object], Iterable[Hashable]]
"""The keys under which an index shows an object; none for an object that it leaves out."""


class Lookup(Protocol):
    """Objects by what `keys_of` said of them."""

    def get(self, key: Hashable, /) -> list[Object]: ...

    def summary(self, key: Hashable, make: Callable[[list[Object]], T], /) -> T: ...


class Source(Protocol):
    """A cache that tells of changes."""

    @property
    def has_synced(self) -> bool: ...

    def get(self, name: str, /) -> Object | None: ...

    def items(self) -> list[Object]: ...

    def index(self, keys_of: KeysOf, /) -> Lookup: ...

    def subscribe(self, watcher: Watcher, /) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Caches:
    """Base of what a controller follows: each field is a `Source`, or None where there is none."""

    @property
    def all(self) -> tuple[Source, ...]:
        found = (getattr(self, each.name) for each in fields(self))
        return tuple(each for each in found if each is not None)


class Snapshot:
    """A `Source` of objects that were read once, by name: nothing in it changes."""

    has_synced = True

    def __init__(self, objects: Mapping[str, Object]) -> None:
        self._objects = objects

    def get(self, name: str, /) -> Object | None:
        return self._objects.get(name)

    def items(self) -> list[Object]:
        return list(self._objects.values())

    def index(self, keys_of: KeysOf, /) -> Lookup:
        index = Index(keys_of)
        for name, body in self._objects.items():
            index.put(name, body)
        return index

    def subscribe(self, watcher: Watcher, /) -> None:
        for name, body in self._objects.items():
            watcher(name, None, body)


class Joined:
    """Several sources as one: no key is in two of them."""

    def __init__(self, *sources: Source) -> None:
        self._sources = sources

    @property
    def has_synced(self) -> bool:
        return all(source.has_synced for source in self._sources)

    def get(self, name: str, /) -> Object | None:
        return next((found for source in self._sources if (found := source.get(name)) is not None), None)

    def items(self) -> list[Object]:
        return [item for source in self._sources for item in source.items()]

    def index(self, keys_of: KeysOf, /) -> Lookup:
        index = Index(keys_of)
        self.subscribe(lambda name, old, new: index.put(name, new))
        return index

    def subscribe(self, watcher: Watcher, /) -> None:
        for source in self._sources:
            source.subscribe(watcher)


def look_up(kind: type[R], source: Source, name: str | None) -> R | None:
    """The object of that name as the cache has it, typed; None for no name."""
    found = source.get(name) if name is not None else None
    return decode_shared(kind, found) if found is not None else None


def spec_of(body: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The spec of an object's JSON; empty without one."""
    return (body or {}).get("spec") or {}


def conditions_of(body: Mapping[str, Any] | None, *types: str) -> list[Mapping[str, Any]]:
    """status.conditions of an object's JSON, of whatever is there what is a condition; of these types alone, if any is
    named."""
    status = (body or {}).get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    if not isinstance(found, list):
        return []
    return [each for each in found if isinstance(each, dict) and (not types or each.get("type") in types)]


def first_condition(body: Mapping[str, Any] | None, type_: str) -> Mapping[str, Any]:
    """The condition of that type in an object's JSON; empty if it has none."""
    return next(iter(conditions_of(body, type_)), {})


def is_true_in(body: Mapping[str, Any] | None, type_: str) -> bool:
    """Whether an object's JSON has a condition of that type which is True. Of duplicates, which foreign writers leave,
    one that is True is enough: a node that lives, or is held, must not be taken for another."""
    return any(each.get("status") == "True" for each in conditions_of(body, type_))


def phase_of(body: Mapping[str, Any] | None) -> str | None:
    """status.phase of an object's JSON."""
    return ((body or {}).get("status") or {}).get("phase")


def when_changed(part: Callable[[Object | None], Any], act: Callable[[str], object]) -> Watcher:
    """A watcher that acts on the key of an object whose `part` is another than before (None: there is no object)."""

    def watcher(key: str, old: Object | None, new: Object | None) -> None:
        if part(old) != part(new):
            act(key)

    return watcher


class Index:
    """A `Lookup` that is kept by changes: each costs the keys of the one object. Usable from several threads.

    What is made of the objects under a key is kept, too, until one of them changes. Most keys have one object, and most
    objects one key: there are many indices over a fleet, and a dict for each of them is more than the object itself.
    """

    def __init__(self, keys_of: KeysOf) -> None:
        self._keys_of = keys_of
        self._lock = threading.Lock()
        self._keys: dict[str, tuple[Hashable, ...]] = {}
        self._objects: dict[Hashable, dict[str, Object] | _Only] = {}
        self._made: dict[Hashable, dict[Hashable, Any]] = {}
        self._changes = 0

    def get(self, key: Hashable, /) -> list[Object]:
        with self._lock:
            return self._under(key)

    def summary(self, key: Hashable, make: Callable[[list[Object]], T], /) -> T:
        """What `make` says of the objects under `key`, made once for each change of them.

        It is known by being equal: pass a function of a module, or a frozen dataclass that can be called.
        """
        with self._lock:
            made = self._made.get(key)
            if made is not None and make in made:
                found: T = made[make]
                return found
            objects, changes = self._under(key), self._changes
        found = make(objects)
        with self._lock:
            if objects and changes == self._changes:
                self._made.setdefault(key, {})[make] = found
        return found

    def put(self, name: str, new: Object | None) -> None:
        """The object of that name is `new` from here on; None: it is gone."""
        keys = tuple(dict.fromkeys(self._keys_of(new))) if new is not None else ()
        with self._lock:
            before = self._keys.pop(name, ())
            self._changes += 1
            for key in {*before, *keys}:
                self._made.pop(key, None)
            for key in before:
                if key not in keys:
                    self._take_off(key, name)
            if new is None or not keys:
                return
            self._keys[name] = keys
            for key in keys:
                self._put_under(key, name, new)

    def _under(self, key: Hashable) -> list[Object]:
        held = self._objects.get(key)
        if held is None:
            return []
        return [held.object] if isinstance(held, _Only) else list(held.values())

    def _put_under(self, key: Hashable, name: str, new: Object) -> None:
        held = self._objects.get(key)
        if held is None or (isinstance(held, _Only) and held.name == name):
            self._objects[key] = _Only(name, new)
        elif isinstance(held, _Only):
            self._objects[key] = {held.name: held.object, name: new}
        else:
            held[name] = new

    def _take_off(self, key: Hashable, name: str) -> None:
        held = self._objects[key]
        if isinstance(held, _Only):
            del self._objects[key]
            return
        del held[name]
        if len(held) == 1:
            self._objects[key] = _Only(*held.popitem())


class _Only(NamedTuple):
    """The one object that a key has."""

    name: str
    object: Object
