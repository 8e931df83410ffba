"""Leader election by a Lease: of several controllers, one works.

Safety does not depend on the wall clock. A candidate takes a foreign lease over only after it saw it unchanged for the
whole lease time by its own boot-time clock (monotonic, and running while the machine sleeps). A leader counts from the
moment *before* the request that renewed, and a watchdog beside the renewing thread ends its leadership after the renew
deadline even if that request hangs. The deadline is shorter than the lease time: the old one has stopped before the
next one starts.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import structlog

from provisioner.api.machinery.errors import Conflict, NotFound, ProvisionerError
from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import LEASES

log = structlog.get_logger()

LONGEST_LEASES: Final = 4
"""A foreign lease counts for as many of the own at most, whatever it says: one that nobody renews is not for ever."""

Lead = Callable[[threading.Event], None]
"""Works until the event is set: leadership is lost, or the program stops. Returns soon after."""


def boot_time() -> float:
    """Seconds since the machine was started, those in which it slept included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaseObserver(Protocol):
    """Is told what becomes of a candidate."""

    def lease_acquired(self, lease: str) -> None:
        """It leads."""

    def lease_ended(self, lease: str, *, lost: bool) -> None:
        """It does no more. lost: the Lease was not renewed in time, or taken by another; else it was handed back."""


class LeaderElector:
    """One candidate. `identity` must be its own: unique to this process, not only to its host or pod name.

    `renew_deadline_seconds` must be less than `lease_seconds`, and the requests are bounded by half of it.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_seconds: int = 15,
        renew_deadline_seconds: float = 10,
        retry_seconds: float = 2,
        clock: Callable[[], float] = boot_time,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        jitter: Callable[[], float] = random.random,
        observer: LeaseObserver | None = None,
    ) -> None:
        if not retry_seconds < renew_deadline_seconds < lease_seconds:
            raise ValueError(
                f"leader election needs retry < renew deadline < lease time;"
                f" {retry_seconds}, {renew_deadline_seconds}, {lease_seconds} s were given"
            )
        self._cluster = cluster.with_timeout(renew_deadline_seconds / 2)
        self._namespace, self.name, self._identity = namespace, name, identity
        self._lease_seconds = lease_seconds
        self._renew_deadline_seconds = renew_deadline_seconds
        self._retry_seconds = retry_seconds
        self._clock, self._now, self._jitter = clock, now, jitter
        self._turned = time.monotonic()
        self._runs = self._leads = False
        self._observer = observer
        self._seen: tuple[Any, ...] | None = None
        self._seen_at = 0.0
        self._log = log.bind(lease=f"{namespace}/{name}", identity=identity)

    @property
    def leads(self) -> bool:
        return self._leads

    def turned_seconds(self) -> float:
        """How long ago the API server was last asked for the Lease, or to renew it, and had answered or had not; 0
        while it does not stand for election."""
        return time.monotonic() - self._turned if self._runs else 0.0

    def run(self, stop: threading.Event, lead: Lead) -> None:
        """Stand for election until `stop` is set; call `lead` each time it is won.

        Returns after `lead` has returned and, if it was leading, the lease has been handed back.
        """
        self._turned, self._runs = time.monotonic(), True
        try:
            self._stand(stop, lead)
        finally:
            self._runs = False

    def _stand(self, stop: threading.Event, lead: Lead) -> None:
        while not stop.is_set():
            asked_at = self._clock()
            lease = self._attempt(self._acquire)
            self._turned = time.monotonic()
            if lease is None:
                stop.wait(self._retry_seconds * (0.5 + self._jitter() / 2))
                continue
            self._log.info("leadership acquired")
            self._lead(lease, asked_at, stop, lead)

    def _lead(self, lease: dict[str, Any], asked_at: float, stop: threading.Event, lead: Lead) -> None:
        lost = threading.Event()
        term = _Term(lease, asked_at)
        renewing = threading.Thread(target=self._renew_until, args=(term, lost), name="leader-renew", daemon=True)
        watching = threading.Thread(target=self._watch_over, args=(term, lost, stop), name="leader-watch", daemon=True)
        renewing.start()
        watching.start()
        self._leads = True
        if self._observer is not None:
            self._observer.lease_acquired(self.name)
        try:
            lead(lost)
        finally:
            self._leads = False
            lost.set()
            renewing.join(self._renew_deadline_seconds)
            if term.held and not renewing.is_alive():
                self._attempt(lambda: self._release(term.lease))
            if self._observer is not None:
                self._observer.lease_ended(self.name, lost=not term.held)

    def _watch_over(self, term: _Term, lost: threading.Event, stop: threading.Event) -> None:
        while not lost.is_set():
            left = term.renewed_at + self._renew_deadline_seconds - self._clock()
            if left <= 0:
                term.held = False
                self._log.error("leadership lost", reason="not renewed in time", deadline=self._renew_deadline_seconds)
            if left <= 0 or stop.is_set():
                lost.set()
                return
            # Short waits, because no event wakes up on the boot-time clock: after a sleep of the machine it has jumped.
            stop.wait(min(left, 0.25))

    def _renew_until(self, term: _Term, lost: threading.Event) -> None:
        while not lost.wait(self._retry_seconds):
            asked_at = self._clock()
            try:
                lease = self._renew(term.lease)
            except _TakenByAnother as taken:
                term.held = False
                self._log.error("leadership lost", reason="another holds the lease", holder=taken.holder)
                lost.set()
            except ProvisionerError as error:
                self._log.warning("lease not renewed", error=str(error))
            else:
                term.lease, term.renewed_at = lease, asked_at
            self._turned = time.monotonic()

    def _attempt(self, step: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
        try:
            return step()
        except Conflict:
            return None  # another candidate was faster
        except ProvisionerError as error:
            self._log.warning("lease not reached", error=str(error))
            return None

    def _acquire(self) -> dict[str, Any] | None:
        """The lease, if it could be had."""
        try:
            lease = self._cluster.get(LEASES, self.name, namespace=self._namespace)
        except NotFound:
            metadata = {"name": self.name, "namespace": self._namespace}
            return self._cluster.create(LEASES, {"metadata": metadata, "spec": self._spec(transitions=0)})
        spec = lease.get("spec") or {}
        # Not even a lease with the own name in it is taken at once: another process may have been given the same name.
        if spec.get("holderIdentity") and not self._expired(lease):
            return None
        transitions = (spec.get("leaseTransitions") or 0) + 1
        return self._cluster.replace(LEASES, {**lease, "spec": self._spec(transitions=transitions)})

    def _expired(self, lease: dict[str, Any]) -> bool:
        spec = lease["spec"]
        seen = (lease["metadata"]["uid"], lease["metadata"]["resourceVersion"])
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
            return False
        said = float(spec.get("leaseDurationSeconds") or self._lease_seconds)
        return self._clock() - self._seen_at > min(said, LONGEST_LEASES * self._lease_seconds)

    def _renew(self, lease: dict[str, Any]) -> dict[str, Any]:
        spec = {**lease["spec"], "renewTime": rfc3339_micro(self._now())}
        try:
            return self._cluster.replace(LEASES, {**lease, "spec": spec})
        except (Conflict, NotFound):
            # Somebody touched the lease (a label, a deletion), or an answer to an own earlier renewal was lost.
            current = self._cluster.get(LEASES, self.name, namespace=self._namespace)
            holder = (current.get("spec") or {}).get("holderIdentity")
            if holder != self._identity or current["metadata"]["uid"] != lease["metadata"]["uid"]:
                raise _TakenByAnother(holder) from None
            return self._cluster.replace(LEASES, {**current, "spec": spec})

    def _release(self, lease: dict[str, Any]) -> None:
        free = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": rfc3339_micro(self._now())}
        self._cluster.replace(LEASES, {**lease, "spec": {**lease["spec"], **free}})
        self._log.info("leadership released")

    def _spec(self, *, transitions: int) -> dict[str, Any]:
        now = rfc3339_micro(self._now())
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._lease_seconds,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }


class _Term:
    """One time of leading."""

    def __init__(self, lease: dict[str, Any], renewed_at: float) -> None:
        self.lease = lease
        self.renewed_at = renewed_at
        self.held = True


class _TakenByAnother(Exception):
    def __init__(self, holder: str | None) -> None:
        super().__init__(holder)
        self.holder = holder
