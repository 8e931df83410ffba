"""Whether a process of controllers is alive, and able to lead: from its parts, as they stand now.

Alive is what no restart would better: an API server that is away, a server that fails, a standby are no reason to be
started anew, or all replicas would be, at once, and just then. What hangs, or has ended that never ends, is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from provisioner.api.machinery.wording import quantity
from provisioner.cluster.controller import ReconcileObserver
from provisioner.cluster.health.checks import Check, HealthVerdict, ill, well
from provisioner.cluster.source import Watcher

ELECTION_SECONDS: Final = 120.0
"""An election turns every 2 s, and waits 5 s for an answer; a leadership that ends has 35 s for its work under way."""
WORK_SECONDS: Final = 900.0
"""Everything that a reconcile waits for has a deadline of its own; together they stay far below this."""
ANSWER_SECONDS: Final = 60.0
"""A Lease is asked for, or renewed, every 2 s."""


class Elector(Protocol):
    name: str

    @property
    def leads(self) -> bool: ...
    def turned_seconds(self) -> float: ...


class FollowedQueue(Protocol):
    def __len__(self) -> int: ...
    def oldest_seconds(self) -> float: ...
    def standing_seconds(self) -> float: ...


class FollowedWorker(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def queue(self) -> FollowedQueue: ...
    def observe(self, observer: ReconcileObserver) -> None: ...
    def dead_workers(self) -> int: ...
    def longest_seconds(self) -> float: ...


class FollowedCache(Protocol):
    failures: int
    lists: int

    @property
    def kind(self) -> str: ...
    @property
    def has_synced(self) -> bool: ...
    @property
    def is_dead(self) -> bool: ...
    def __len__(self) -> int: ...
    def turned_seconds(self) -> float: ...
    def heard_seconds(self) -> float: ...
    def subscribe(self, watcher: Watcher, /) -> None: ...


class Process:
    """The parts of one process. `answered_ago`: seconds since the API server last answered; None if it never did."""

    def __init__(self, answered_ago: Callable[[], float | None]) -> None:
        self._answered_ago = answered_ago
        self._electors: tuple[Elector, ...] = ()
        self._controllers: tuple[FollowedWorker, ...] = ()
        self._caches: tuple[FollowedCache, ...] = ()
        self._may_act = False

    @property
    def controllers(self) -> tuple[FollowedWorker, ...]:
        """Those that work now: none on a standby."""
        return self._controllers

    @property
    def caches(self) -> tuple[FollowedCache, ...]:
        return self._caches

    def may_act(self) -> None:
        """The API server has said that the process may do what it is for."""
        self._may_act = True

    def stand(self, elector: Elector) -> None:
        """It stands for election, for as long as it runs."""
        self._electors = (*(each for each in self._electors if each.name != elector.name), elector)

    @contextmanager
    def following(self, caches: Sequence[FollowedCache]) -> Iterator[None]:
        """It keeps these meanwhile."""
        self._caches = tuple(caches)
        try:
            yield
        finally:
            self._caches = ()

    @contextmanager
    def working(self, controllers: Sequence[FollowedWorker]) -> Iterator[None]:
        """These work meanwhile: not before the caches are complete, which an API server that is away puts off."""
        self._controllers = tuple(controllers)
        try:
            yield
        finally:
            self._controllers = ()

    def liveness(self) -> tuple[Check, ...]:
        """Of `/healthz`."""
        return (
            Check("election", self._election),
            Check("workers", self._workers),
            Check("queues", self._queues),
            Check("watches", self._watches),
        )

    def readiness(self) -> tuple[Check, ...]:
        """Of `/readyz`; a standby is as ready as a leader."""
        return (
            Check("api-server", self._api_server),
            Check("accounts", self._accounts),
            Check("caches", self._caches_complete),
            Check("leader", self._leader),
        )

    def _election(self) -> HealthVerdict:
        for elector in self._electors:
            seconds = elector.turned_seconds()
            if seconds > ELECTION_SECONDS:
                return ill(f"{elector.name} was last asked for {seconds:.0f} s ago, expected every few seconds")
        return well()

    def _workers(self) -> HealthVerdict:
        for controller in self._controllers:
            if dead := controller.dead_workers():
                return ill(f"{quantity(dead, 'worker')} of controller {controller.name} ended")
            seconds = controller.longest_seconds()
            if seconds > WORK_SECONDS:
                return ill(f"controller {controller.name} has worked on one key for {seconds:.0f} s")
        return well(quantity(len(self._controllers), "controller"))

    def _queues(self) -> HealthVerdict:
        for controller in self._controllers:
            seconds = controller.queue.standing_seconds()
            if seconds > WORK_SECONDS:
                of = f"of controller {controller.name}"
                keys = quantity(len(controller.queue), f"key {of} stands", f"keys {of} stand")
                return ill(f"{keys} for {seconds:.0f} s")
        waiting = sum(len(each.queue) for each in self._controllers)
        oldest = max((each.queue.oldest_seconds() for each in self._controllers), default=0.0)
        return well(f"{quantity(waiting, 'key waits', 'keys wait')}, the oldest for {oldest:.0f} s")

    def _watches(self) -> HealthVerdict:
        for cache in self._caches:
            if cache.is_dead:
                return ill(f"the watch of {cache.kind} has ended")
            seconds = cache.turned_seconds()
            if seconds > WORK_SECONDS:
                return ill(f"the watch of {cache.kind} has hung for {seconds:.0f} s")
        return well(quantity(len(self._caches), "watch", "watches"))

    def _api_server(self) -> HealthVerdict:
        seconds = self._answered_ago()
        if seconds is None:
            return ill("it has not answered yet")
        words = f"it last answered {seconds:.0f} s ago"
        return well(words) if seconds <= ANSWER_SECONDS else ill(words)

    def _accounts(self) -> HealthVerdict:
        return well() if self._may_act else ill("the process may not act as its accounts yet; its log says why")

    def _caches_complete(self) -> HealthVerdict:
        missing = sorted({cache.kind for cache in self._caches if not cache.has_synced})
        if missing:
            return ill(f"not complete: {', '.join(missing)}")
        return well(f"{len(self._caches)} complete" if self._caches else "none is kept: who stands by has none")

    def _leader(self) -> HealthVerdict:
        led = [each.name for each in self._electors if each.leads]
        return well(f"holds {', '.join(led)}" if led else "stands by")
