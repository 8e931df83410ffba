"""Is the Node alive? Pure, but for what LeaseWatch remembers.

A Node is alive if it is Ready, or if its kubelet renewed its Lease within the fresh time. Three clocks date a renewal,
and one that calls it fresh is enough, for a node that lives must not be reset:

- the node's own (`renewTime`), which may be wrong in both directions: it counts only within the fresh time around now;
- the API server's, which dates each write in `managedFields`: what one read can tell whatever the node's clock says;
- ours, where the Lease was seen to change. It needs no other clock: a boot is ordered by it.

A node can write its own Lease, and no other's: who controls it makes itself look dead, or alive for as long as it likes
to renew. Its server is then reset with what runs on it, or not without a Maintenance; both it can have without a Lease.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api.machinery.meta import read_time
from provisioner.cluster.source import spec_of
from provisioner.cluster.trim import IDENTITY, VALUE_LETTERS, picked
from provisioner.rules.bootability import without_remedy
from provisioner.rules.nodes import NodeView

USUAL_LEASE_SECONDS: Final = 40
"""What a kubelet's Lease lasts, if nothing else is configured. It is renewed after a quarter of that."""
LONGEST_LEASE_SECONDS: Final = 600
"""A longer duration counts as this one: a node's own word does not make it live for days after it died."""
FRESH_SHARE: Final = 0.625
"""Of the duration: two renewals may be missed and the third be late. 25 s of the usual 40."""


def fresh_time(duration_seconds: object = None) -> timedelta:
    """For how long a Lease of that duration shows life. A shorter one than usual counts as the usual one."""
    seconds = duration_seconds if isinstance(duration_seconds, int) else USUAL_LEASE_SECONDS
    return timedelta(seconds=FRESH_SHARE * min(max(seconds, USUAL_LEASE_SECONDS), LONGEST_LEASE_SECONDS))


FRESH_TIME: Final = fresh_time()


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """A kubelet's Lease. renewed: its last renewal by the node's clock; written: by the API server's.

    seen: since when it has been seen as it is, by ours. moved: whether it was seen to change then, or only to be there.
    """

    renewed: datetime | None = None
    written: datetime | None = None
    seen: datetime | None = None
    moved: bool = False
    fresh: timedelta = FRESH_TIME

    def is_fresh(self, now: datetime) -> bool:
        """Whether the kubelet may live. A Lease that was only begun to look at counts as fresh: it cannot tell yet."""
        return self.is_proven(now) or self._was_seen_lately(now)

    def is_proven(self, now: datetime) -> bool:
        """Whether there is a sign of life, not just no time yet to see that there is none."""
        dated = any(at is not None and abs(now - at) <= self.fresh for at in (self.renewed, self.written))
        return dated or (self.moved and self._was_seen_lately(now))

    def last(self, now: datetime) -> datetime | None:
        """The latest moment at which the kubelet can have renewed it; None if it never did."""
        times = [at for at in (self.renewed, self.written) if at is not None and at <= now + self.fresh]
        return max(times if self.seen is None else [*times, self.seen], default=None)

    @property
    def changed(self) -> datetime | None:
        """When it was renewed last, by the clock that is known best: the API server's, ours, the node's."""
        return self.written or (self.seen if self.moved else None) or self.renewed

    def _was_seen_lately(self, now: datetime) -> bool:
        return self.seen is not None and now - self.seen <= self.fresh


@dataclass(frozen=True, kw_only=True)
class NodeLife:
    """A Node and its Lease. `ready` is None while the Node has no such condition; `boot_id` is lower case.

    has_reported: whether a kubelet wrote its status. A Node without was made for the boot to come: a Lease beside it is
    that of the Node which a person deleted before, which is how a person asks for a boot.
    """

    name: str
    ready: bool | None
    ready_message: str
    boot_id: str | None
    has_reported: bool = True
    heartbeat: Heartbeat = Heartbeat()

    def is_alive(self, now: datetime) -> bool:
        """Whether something may run there. Such a server is never reset, but by a Maintenance that has drained it."""
        return self.ready is True or (self.has_reported and self.heartbeat.is_fresh(now))

    def was_heard(self, now: datetime) -> bool:
        """Whether that is seen, not just not yet seen to be otherwise."""
        return self.ready is True or (self.has_reported and self.heartbeat.is_proven(now))

    def sign_of_life(self, now: datetime) -> str | None:
        """What says that it is alive; None if nothing does. The words do not change while it goes on living.

        Ready alone counts: it turns Unknown some 50 s after the last sign of life, by the clock of the node controller,
        which also knows how to wait after the API server itself was away.
        """
        if self.ready is True:
            return f"it is Ready in boot {self.boot_id}"
        if self.is_alive(now):
            return f"its kubelet renewed its Lease less than {int(self.heartbeat.fresh.total_seconds())} s ago"
        return None


@dataclass(frozen=True)
class LeaseSighting:
    """How long a Lease has been seen as it is, and whether it was seen to become so."""

    age_seconds: float
    moved: bool


class LeaseWatch:
    """Remembers when each Lease was seen to change. In memory only: after a restart each Lease is new once.

    Usable from several threads. `clock` is monotonic.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[str, float, bool]] = {}

    def look(self, name: str, lease: Mapping[str, Any] | None) -> LeaseSighting | None:
        """Take note of the Lease of Node `name` as it is now; None without a Lease that was ever renewed."""
        renewed = spec_of(lease).get("renewTime")
        with self._lock:
            now = self._clock()
            if not renewed:
                self._seen.pop(name, None)
                return None
            text, since, moved = self._seen.get(name, (None, now, False))
            if text != renewed:
                since, moved = now, text is not None
                self._seen[name] = (str(renewed), since, moved)
            return LeaseSighting(now - since, moved)


def trim_lease(lease: dict[str, Any]) -> dict[str, Any]:
    """What a copy keeps of a Lease, which its node may fill: when it was renewed, and when it was last written."""
    metadata = lease["metadata"]
    writes = sorted(str(each["time"]) for each in metadata.get("managedFields") or () if each.get("time"))
    return {
        "metadata": picked(metadata, IDENTITY) | {"managedFields": [{"time": each} for each in writes[-1:]]},
        "spec": picked(lease.get("spec"), ("renewTime", "leaseDurationSeconds"), VALUE_LETTERS),
    }


def renewed_time(lease: Mapping[str, Any] | None) -> datetime | None:
    """When a Lease says that it was renewed, by the node's clock."""
    return read_time(spec_of(lease).get("renewTime"))


def read_heartbeat(
    lease: Mapping[str, Any] | None, sighting: LeaseSighting | None = None, now: datetime | None = None
) -> Heartbeat:
    """A Lease as the API server gives it. `sighting`, as of `now`: what a LeaseWatch knows of it."""
    writes = [
        read_time(entry.get("time")) for entry in ((lease or {}).get("metadata") or {}).get("managedFields") or ()
    ]
    seen = now - timedelta(seconds=sighting.age_seconds) if sighting is not None and now is not None else None
    renewed = renewed_time(lease)
    return Heartbeat(
        renewed=renewed,
        written=max((at for at in writes if at is not None), default=None) if renewed is not None else None,
        seen=seen,
        moved=seen is not None and sighting is not None and sighting.moved,
        fresh=fresh_time(spec_of(lease).get("leaseDurationSeconds")),
    )


def read_life(
    node: Mapping[str, Any] | None,
    lease: Mapping[str, Any] | None,
    sighting: LeaseSighting | None = None,
    now: datetime | None = None,
) -> NodeLife | None:
    """A Node and its Lease as the API server gives them."""
    if node is None:
        return None
    view = NodeView(node)
    ready = view.condition("Ready")
    return NodeLife(
        name=view.name,
        ready=ready.is_true if ready is not None else None,
        ready_message=without_remedy(ready.message) if ready is not None else "",
        boot_id=view.boot_id,
        has_reported=view.has_reported,
        heartbeat=read_heartbeat(lease, sighting, now),
    )
