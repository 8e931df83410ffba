"""One watch: the lines of the API server's stream as changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, cast

from provisioner.api.errors import Retryable
from provisioner.cluster.failures import Expired
from provisioner.cluster.transport import Stream

ChangeType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True)
class Change:
    """What happened to an object; a BOOKMARK carries a resourceVersion and nothing else."""

    type: ChangeType
    object: dict[str, Any]

    @property
    def resource_version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])


def read_changes(stream: Stream, *, deadline: float, clock: Callable[[], float]) -> Iterator[Change]:
    """The changes on a stream until the API server ends it.

    Raises: Expired if the server forgot where the watch began; Retryable if the stream breaks, carries nonsense, or
    goes on after `deadline` (of `clock`), by which the server was told to end it.
    """
    for line in stream.lines():
        if clock() > deadline:
            raise Retryable("watch outlived the time after which the server was to end it", after_seconds=0.0)
        if not line.strip():
            continue
        try:
            message = json.loads(line)
            type_, object_ = message["type"], message["object"]
        except (ValueError, KeyError, TypeError) as error:
            raise Retryable(f"watch carried no change but {line[:200]!r}") from error
        if type_ == "ERROR":
            words = object_.get("message", "watch ended with an error")
            if object_.get("code") == HTTPStatus.GONE:
                raise Expired(words, after_seconds=0.0)
            raise Retryable(words)
        yield Change(cast(ChangeType, type_), object_)
