"""The words of `kubectl provision why` and `rollout status`, which the pages repeat: given by who wires them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from provisioner.cluster.leadership import NoLeader
from provisioner.cluster.recent_events import RecentEvents


@dataclass(frozen=True)
class StatusText:
    """A headline, and under each label what there is to say; labels without entries are left out."""

    headline: str
    sections: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, kw_only=True)
class PoolMember:
    """A server of a pool: where it stands in the rollout, in a word and a mark, and what it waits for."""

    name: str
    state: str
    word: str
    mark: str
    image: str
    assigned: str
    waits: str


@dataclass(frozen=True, kw_only=True)
class PoolTold:
    """counts: how many servers stand so, by state, with the words and mark of each. members: those of which there is
    something to say first."""

    told: StatusText
    counts: tuple[tuple[str, str, str, int], ...]
    members: Sequence[PoolMember]


class Words(Protocol):
    """Pure: from what the copies hold, at `now` of its own clock."""

    def of_server(self, name: str, events: RecentEvents | None, no_leader: NoLeader | None) -> StatusText | None: ...

    def of_pool(self, name: str) -> PoolTold | None: ...
