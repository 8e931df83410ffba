"""Events that are kept instead of written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Told(NamedTuple):
    """What would become an Event, and of which object."""

    kind: str
    name: str
    type: str
    reason: str
    message: str


@dataclass
class FakeEvents:
    """Has the method of `EventRecorder` by which something is told."""

    told: list[Told] = field(default_factory=list)

    def record(self, regarding: Mapping[str, Any], type: str, reason: str, message: str) -> None:  # noqa: A002
        self.told.append(Told(regarding["kind"], regarding["metadata"]["name"], type, reason, message))

    def reasons(self, kind: str | None = None) -> list[str]:
        """In the order in which they were told; those of objects of that kind alone."""
        return [each.reason for each in self.told if kind in (None, each.kind)]
