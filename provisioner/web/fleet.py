"""All servers as rows, rack by rack, with counts that are kept as rows change. Usable from several threads."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from provisioner.web.row import ServerRow
from provisioner.web.states import STATES, StateKey

_COUNTED: Final = re.compile(r"(\D*)(\d{0,18})")


@dataclass(frozen=True, kw_only=True)
class WaitingGroup:
    """Servers that wait for the same: how many, in which state, and the words of one of them."""

    state: StateKey
    reason: str
    servers: int
    words: str
    example: str


class Fleet:
    """Rows by name. `version` counts what was changed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, ServerRow] = {}
        self._counts: Counter[StateKey] = Counter()
        self._by_rack: dict[str, dict[str, ServerRow]] = {}
        self._rack_versions: dict[str, int] = {}
        self.version = 0

    def put(self, name: str, new: ServerRow | None) -> ServerRow | None:
        """Take `new` in for the server of that name, None for one that is gone; returns what was known of it."""
        with self._lock:
            old = self._rows.pop(name, None)
            if old is not None:
                self._counts[old.state] -= 1
                of_rack = self._by_rack[old.rack]
                of_rack.pop(name, None)
                if not of_rack:
                    del self._by_rack[old.rack]
            if new is not None:
                self._rows[name] = new
                self._counts[new.state] += 1
                self._by_rack.setdefault(new.rack, {})[name] = new
            if old != new:
                self.version += 1
                for row in (old, new):
                    if row is not None:
                        self._rack_versions[row.rack] = self.version
        return old

    def version_of_rack(self, rack: str) -> int:
        """Another one after every change of a server there."""
        with self._lock:
            return self._rack_versions.get(rack, 0)

    def counts(self) -> dict[StateKey, int]:
        """Of every state, in the order of `STATES`."""
        with self._lock:
            return {key: self._counts[key] for key in STATES}

    def rows(self) -> list[ServerRow]:
        with self._lock:
            return list(self._rows.values())

    def of_rack(self, rack: str) -> list[ServerRow]:
        with self._lock:
            return list(self._by_rack.get(rack, {}).values())

    def racks(self) -> list[str]:
        """Those with servers, by name: r99 comes before r100."""
        with self._lock:
            return sorted(self._by_rack, key=by_number)


def by_number(name: str) -> tuple[tuple[str, int], ...]:
    """As people count: the letters of a name as letters, its numbers as numbers."""
    return tuple((letters, int(number or 0)) for letters, number in _COUNTED.findall(name))


def in_place(rows: Sequence[ServerRow]) -> list[ServerRow]:
    """As they stand in a rack, from the top down; a card after its host; those of no known place last, by name."""
    units = {row.name: row.unit for row in rows}

    def place(row: ServerRow) -> tuple[int, str, bool, str]:
        unit = row.unit if row.host is None else units.get(row.host, row.unit)
        return -(unit or 0), row.host or row.name, row.host is not None, row.name

    return sorted(rows, key=place)


def waiting_groups(rows: Sequence[ServerRow]) -> list[WaitingGroup]:
    """What waits, and why: servers of the same state and reason together, in the order of `STATES`, the many first."""
    found: dict[tuple[StateKey, str], list[ServerRow]] = {}
    for row in rows:
        if STATES[row.state].waits or row.words:
            found.setdefault((row.state, row.reason), []).append(row)
    order = list(STATES)
    groups = [
        WaitingGroup(state=state, reason=reason, servers=len(each), words=first.words, example=first.name)
        for (state, reason), each in found.items()
        for first in (min(each, key=lambda row: row.name),)
    ]
    return sorted(groups, key=lambda group: (order.index(group.state), -group.servers, group.reason))


@dataclass(frozen=True, kw_only=True)
class FleetFilter:
    """What a person looks for; empty: no matter."""

    text: str = ""
    state: str = ""
    pool: str = ""
    rack: str = ""
    reason: str = ""

    @property
    def is_everything(self) -> bool:
        return not (self.text or self.state or self.pool or self.rack or self.reason)

    def matches(self, row: ServerRow) -> bool:
        """Every word of the text is in what is known of the server by name."""
        return (
            (not self.state or row.state == self.state)
            and (not self.pool or row.pool == self.pool)
            and (not self.rack or row.rack == self.rack)
            and (not self.reason or row.reason == self.reason)
            and all(word in row.searched for word in self.text.lower().split())
        )
