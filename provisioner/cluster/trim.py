"""What copies keep of objects: each is held as long as its object exists, and who may write an object may fill it.

Of what tenants and nodes write only the fields that are used are kept, each with a bound. What a stage uses of a kind
that is not ours stands in that stage (`trim_pod`, `trim_node`, `trim_request`…).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

Object = dict[str, Any]
Trim = Callable[[Object], Object | None]
"""What a copy keeps of an object, which it may change; None if it is of no interest, as if it were not there."""

IDENTITY: Final = ("name", "namespace", "uid", "resourceVersion")
LIFE: Final = ("generation", "creationTimestamp", "deletionTimestamp")
VALUE_LETTERS: Final = 253
"""Of a label, an annotation, a name or a reason."""
MOST_ENTRIES: Final = 64
"""Of a list of which a few entries are usual, such as containers."""


def without_managed_fields(object_: Object) -> Object:
    """All but who owns which field: that is as much again as the object itself."""
    object_["metadata"].pop("managedFields", None)
    return object_


def without_metadata(object_: Object) -> Object:
    """An object of which labels and annotations are nothing to us: they can be as large as an object may be."""
    object_["metadata"] = picked(object_["metadata"], (*IDENTITY, *LIFE))
    return object_


def picked(mapping: Mapping[str, Any] | None, keys: Iterable[str], letters: int | None = None) -> Object:
    """What is at `keys`, as far as it is there; with `letters`, strings no longer than that."""
    found = mapping or {}
    return {key: clipped(found[key], letters) for key in keys if key in found}


def clipped(value: Any, letters: int | None) -> Any:
    return value[:letters] if letters is not None and isinstance(value, str) else value


def controller_of(metadata: Mapping[str, Any]) -> list[Object]:
    """The owner that controls an object, as the list that `ownerReferences` is."""
    owners = [owner for owner in metadata.get("ownerReferences") or () if owner.get("controller")]
    return [
        {**picked(owner, ("name", "uid", "controller"), VALUE_LETTERS), "kind": str(owner.get("kind") or "")[-63:]}
        for owner in owners[:1]
    ]
