"""What stages read of an informer, as an interface: `provisioner.cluster.informer.Informer`, or a test's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Object = dict[str, Any]
Watcher = Callable[[str, Object | None, Object | None], None]
"""Called with key, old and new; old None: it appeared; new None: it is gone."""


class Source(Protocol):
    """A cache that tells of changes."""

    @property
    def has_synced(self) -> bool: ...

    def get(self, name: str, /) -> Object | None: ...

    def items(self) -> list[Object]: ...

    def subscribe(self, watcher: Watcher, /) -> None: ...
