"""Between the typed kinds and the JSON of the API server.

Reading tolerates what it does not know (an older program meets a newer CRD); writing leaves out what is not set, so
that a server-side apply owns only what it says.
"""

from __future__ import annotations

import dataclasses
import json
import threading
import types
import typing
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Final, NamedTuple, Self, TypeVar

from provisioner.api.machinery.errors import Refused
from provisioner.api.machinery.meta import Resource
from provisioner.api.machinery.schema import API_VERSION, json_name

T = TypeVar("T")
R = TypeVar("R", bound=Resource)


class _Field(NamedTuple):
    """A field of a kind. `type`: what nearly all its values are, exactly; `read` reads the others. says_empty: whether
    an empty list is another thing than none."""

    name: str
    key: str
    type: type
    read: Callable[[Any], Any]
    required: bool
    says_empty: bool


class _Misfit(Exception):
    """A value that is not what its kind says. Its path grows on the way out: what is right needs none."""

    def __init__(self, refusal: Callable[[str], Refused], path: str = "") -> None:
        self.refusal, self.path = refusal, path

    def within(self, before: str) -> Self:
        self.path = f"{before}{'.' if self.path and self.path[0] != '[' else ''}{self.path}"
        return self


@cache
def _fields(cls: type) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(
        _Field(
            f.name,
            json_name(f.name),
            _exactly(hints[f.name]),
            _reader(hints[f.name]),
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
            f.default is None,
        )
        for f in dataclasses.fields(cls)
    )


def to_json(value: Any) -> Any:
    """JSON of a dataclass instance: unset (None) and empty optional fields left out (an empty one that could be
    None is written), tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        rendered = {}
        for name, key, _, _, required, says_empty in _fields(type(value)):
            item = getattr(value, name)
            if item is None or (not required and not says_empty and item in ((), {})):
                continue
            rendered[key] = to_json(item)
        return rendered
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def from_json(cls: type[T], data: Mapping[str, Any], path: str = "") -> T:
    """An instance of `cls` from JSON. Raises: Refused if a required field is missing or of another type."""
    try:
        return _read_fields(cls, data)
    except _Misfit as misfit:
        raise misfit.refusal(f"{path}{misfit.path}") from None


def _read_fields(cls: type[T], data: Mapping[str, Any]) -> T:
    arguments = {}
    for name, key, type_, read, required, _ in _fields(typing.cast(type, cls)):
        value = data.get(key)
        if type(value) is type_:
            arguments[name] = value
        elif value is not None:
            try:
                arguments[name] = read(value)
            except _Misfit as misfit:
                raise misfit.within(key) from None
        elif required:
            raise _Misfit(lambda path: Refused(f"{cls.__name__} lacks {path}", hint=f"set {path}"), key)
    return cls(**arguments)


_SCALAR_WORDS: Final = {str: "a string", int: "a whole number", bool: "true or false"}


def _required_of(hint: Any) -> tuple[Any, ...]:
    """The options of a union, but None; or the one hint."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(option for option in typing.get_args(hint) if option is not type(None))
    return (hint,)


def _exactly(hint: Any) -> type:
    """The scalar type of a field; `_Misfit`, which no value has, for all others."""
    options = _required_of(hint)
    return options[0] if len(options) == 1 and options[0] in _SCALAR_WORDS else _Misfit


def _reader(hint: Any) -> Callable[[Any], Any]:
    """What reads a value of the type `hint`: looked up once, for every object of a fleet is read by it."""
    options = _required_of(hint)
    if len(options) > 1:
        return _read_int_or_string if set(options) == {int, str} else _reader(options[0])
    (hint,) = options
    if dataclasses.is_dataclass(hint):
        return partial(_read_object, hint)
    if typing.get_origin(hint) is tuple:
        return partial(_read_list, _reader(typing.get_args(hint)[0]))
    if typing.get_origin(hint) is dict:
        return _read_mapping
    if hint in _SCALAR_WORDS:
        return partial(_read_scalar, hint)
    return _read_anything


def _read_int_or_string(value: Any) -> Any:
    if not isinstance(value, int | str) or isinstance(value, bool):
        raise _Misfit(
            lambda path: Refused(
                f"{path} is {value!r}, not a whole number or a string", hint=f"make {path} one of them"
            )
        )
    return value


def _read_object(cls: Any, value: Any) -> Any:
    _expect(value, Mapping, "an object")
    return _read_fields(cls, value)


def _read_list(read: Callable[[Any], Any], value: Any) -> Any:
    _expect(value, list, "a list")
    items = []
    for place, item in enumerate(value):
        try:
            items.append(read(item))
        except _Misfit as misfit:
            raise misfit.within(f"[{place}]") from None
    return tuple(items)


def _read_mapping(value: Any) -> Any:
    _expect(value, Mapping, "an object")
    return dict(value)


def _read_scalar(type_: type, value: Any) -> Any:
    _expect(value, type_, _SCALAR_WORDS[type_])
    return value


def _read_anything(value: Any) -> Any:
    return value


def _expect(value: Any, type_: type, words: str) -> None:
    if type(value) is dict and type_ is Mapping:
        return
    if not isinstance(value, type_) or (type_ is int and isinstance(value, bool)):
        raise _Misfit(lambda path: Refused(f"{path} is {value!r}, not {words}", hint=f"make {path} {words}"))


def read_foreign_json(text: str) -> Any:
    """JSON that somebody wrote into a string. Raises: ValueError, RecursionError.

    Half of a surrogate pair is none of Unicode's characters, though JSON can spell it: the API server refuses it.
    """
    data = json.loads(text)
    json.dumps(data, ensure_ascii=False).encode()
    return data


def read_annotation(cls: type[T], text: object) -> T | None:
    """What a machine wrote of itself; None if it is not what it should be."""
    if not isinstance(text, str):
        return None
    try:
        data = read_foreign_json(text)
        return from_json(cls, data) if isinstance(data, dict) else None
    except (ValueError, Refused, RecursionError):
        return None


def decode(cls: type[R], data: Mapping[str, Any]) -> R:
    """A typed object (`Server`, `Rack`…) from what the API server returned."""
    return from_json(cls, data)


SHARED: Final = 512
_shared: OrderedDict[tuple[type, int], tuple[Mapping[str, Any], Any]] = OrderedDict()
_shared_lock = threading.Lock()


def decode_shared(cls: type[R], data: Mapping[str, Any]) -> R:
    """As `decode`, for JSON that nobody changes, such as an informer's: of those who ask for the same object one after
    the other (several controllers, several times) only the first one waits."""
    key = (cls, id(data))
    found = _shared.get(key)
    if found is not None and found[0] is data:
        with _shared_lock:
            if key in _shared:
                _shared.move_to_end(key)
        typed: R = found[1]
        return typed
    typed = decode(cls, data)
    with _shared_lock:
        _shared[key] = (data, typed)  # the JSON, too: while it is held, nothing else has its id
        if len(_shared) > SHARED:
            _shared.popitem(last=False)
    return typed


def encode(resource: Resource) -> dict[str, Any]:
    """The whole object as JSON, `apiVersion` and `kind` included; an empty status is left out."""
    body = to_json(resource)
    if not body.get("status"):
        body.pop("status", None)
    return {"apiVersion": API_VERSION, "kind": resource.KIND.kind, **body}
