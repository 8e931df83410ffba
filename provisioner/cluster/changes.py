"""One watch: the lines of the API server's stream as changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal, cast

import structlog

from provisioner.api.machinery.errors import Retryable
from provisioner.cluster.bounded_json import Object, decode_shallow, decoding
from provisioner.cluster.failures import Expired
from provisioner.cluster.transport import Stream

log = structlog.get_logger()

ChangeType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

_LEVELS: Final = 3
"""A change, its object, the object's metadata."""


@dataclass(frozen=True)
class WatchEvent:
    """What happened to an object; a BOOKMARK carries a resourceVersion and nothing else.

    object: what `keep` made of it; None of one that is gone, and for what it does not keep.
    """

    type: ChangeType
    name: str
    namespace: str
    resource_version: str
    object: Object | None


def read_changes(
    stream: Stream,
    *,
    deadline: float,
    clock: Callable[[], float],
    keep: Callable[[Object], Object | None] = lambda object_: object_,
) -> Iterator[WatchEvent]:
    """The changes on a stream until the API server ends it.

    Raises: Expired if the server forgot where the watch began; Retryable if the stream breaks, carries nonsense, or
    goes on after `deadline` (of `clock`), by which the server was told to end it.
    """
    for line in stream.lines():
        if clock() > deadline:
            raise Retryable("watch outlived the time after which the server was to end it", after_seconds=0.0)
        if not line.strip():
            continue
        with decoding(len(line)):
            change = _read_change(line, keep)
        yield change


def _read_change(line: bytes, keep: Callable[[Object], Object | None]) -> WatchEvent:
    try:
        message, is_whole = _decode(line)
        type_, object_ = message["type"], message["object"]
        if type_ == "ERROR":
            words = object_.get("message", "watch ended with an error")
            if object_.get("code") == HTTPStatus.GONE:
                raise Expired(words, after_seconds=0.0)
            raise Retryable(words)
        metadata = object_["metadata"]
        named = str(metadata.get("name") or ""), str(metadata.get("namespace") or "")
        version = str(metadata["resourceVersion"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Retryable(f"watch carried no change but {line[:200]!r}") from error
    kept: Object | None = None
    try:
        if type_ in ("ADDED", "MODIFIED") and is_whole:
            kept = keep(object_)
    except RecursionError:
        is_whole = False
    if not is_whole:
        log.warning(
            "object was left out", error="it is nested too deeply to be kept", name=named[0], namespace=named[1]
        )
    return WatchEvent(cast(ChangeType, type_), *named, version, kept)


def _decode(line: bytes) -> tuple[Any, bool]:
    """What the line says, and whether that is all of it. Raises: ValueError."""
    try:
        return json.loads(line), True
    except RecursionError:
        return decode_shallow(line.decode(), _LEVELS), False
