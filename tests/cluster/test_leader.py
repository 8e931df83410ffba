"""Of several candidates one leads, through hung requests, clock jumps and crashes; against the real API server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from provisioner.cluster.client import Cluster
from provisioner.cluster.leader import LeaderElector, boot_time
from provisioner.cluster.resources import LEASES
from tests.cluster.fault_injecting_proxy import FaultInjectingProxy, Seen

GENEROUS_SECONDS = 180
NAMESPACE = "provisioner-system"
NEVER_IN_THIS_TEST = 3600  # a lease that no test outlives: who gets it, got it without its expiry


class Candidate:
    """A candidate in its own thread, and the moments at which it began and ended to lead."""

    def __init__(self, cluster: Cluster, name: str, identity: str, **arguments: Any) -> None:
        times = {"lease_seconds": 3, "renew_deadline_seconds": 2, "retry_seconds": 0.2}
        if arguments.get("lease_seconds") == NEVER_IN_THIS_TEST:
            times["renew_deadline_seconds"] = 600  # a slow machine does not cost its leadership either
        arguments = times | arguments
        self.attempts = 0
        self.elector = LeaderElector(
            cluster, namespace=NAMESPACE, name=name, identity=identity, jitter=self._jitter, **arguments
        )
        self.stop = threading.Event()
        self.leading = threading.Event()
        self.lost = threading.Event()
        self.began_at: list[float] = []
        self.ended_at: list[float] = []
        self._thread = threading.Thread(target=self.elector.run, args=(self.stop, self._lead), daemon=True)

    def start(self) -> Candidate:
        self._thread.start()
        return self

    def _lead(self, lost: threading.Event) -> None:
        self.began_at.append(time.monotonic())
        self.leading.set()
        lost.wait()
        self.ended_at.append(time.monotonic())
        self.lost.set()

    def _jitter(self) -> float:
        self.attempts += 1
        return 0.0

    def wait_for_attempts(self, more: int) -> None:
        wanted, deadline = self.attempts + more, time.monotonic() + GENEROUS_SECONDS
        while self.attempts < wanted:
            assert time.monotonic() < deadline, "the candidate does not try"
            time.sleep(0.02)

    def end(self) -> None:
        self.stop.set()
        self._thread.join(GENEROUS_SECONDS)
        assert not self._thread.is_alive()


class JumpingClock:
    """The real boot-time clock and what the test adds to it."""

    def __init__(self) -> None:
        self.jump_seconds = 0.0
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return boot_time() + self.jump_seconds


def lease_of(cluster: Cluster, name: str) -> dict[str, Any]:
    spec: dict[str, Any] = cluster.get(LEASES, name, namespace=NAMESPACE)["spec"]
    return spec


def test_of_two_candidates_one_leads_and_hands_over_when_it_stops(cluster: Cluster, unique: str) -> None:
    first = Candidate(cluster, unique, "first", lease_seconds=NEVER_IN_THIS_TEST).start()
    assert first.leading.wait(GENEROUS_SECONDS)
    second = Candidate(cluster, unique, "second", lease_seconds=NEVER_IN_THIS_TEST).start()
    second.wait_for_attempts(3)
    assert not second.leading.is_set()
    assert lease_of(cluster, unique)["holderIdentity"] == "first"
    first.end()
    assert second.leading.wait(GENEROUS_SECONDS)
    assert first.ended_at[0] < second.began_at[0]
    assert lease_of(cluster, unique)["holderIdentity"] == "second"
    assert lease_of(cluster, unique)["leaseTransitions"] == 1
    second.end()
    assert lease_of(cluster, unique)["holderIdentity"] == ""


def test_a_leader_whose_requests_hang_stops_before_the_next_one_starts(
    cluster: Cluster, proxy: FaultInjectingProxy, faulty: Cluster, unique: str
) -> None:
    # What lies between the end of the one and the begin of the other is a slow machine's to lose.
    first = Candidate(faulty, unique, "first", lease_seconds=8).start()
    assert first.leading.wait(GENEROUS_SECONDS)
    second = Candidate(cluster, unique, "second", lease_seconds=8).start()
    with proxy.hanging():
        assert first.lost.wait(GENEROUS_SECONDS)
        assert second.leading.wait(GENEROUS_SECONDS)
    assert first.ended_at[0] < second.began_at[0]
    first.end()
    assert lease_of(cluster, unique)["holderIdentity"] == "second", "who lost the lease does not hand it back"
    second.end()


def test_a_short_absence_of_the_api_server_does_not_cost_the_leadership(
    proxy: FaultInjectingProxy, faulty: Cluster, unique: str
) -> None:
    leader = Candidate(faulty, unique, "first", lease_seconds=NEVER_IN_THIS_TEST).start()
    assert leader.leading.wait(GENEROUS_SECONDS)
    before = len(proxy.seen())
    with proxy.refusing():
        proxy.wait_until(lambda seen: len(seen) > before + 2)
    before = len(proxy.seen())
    proxy.wait_until(lambda seen: any(request.method == "PUT" and request.status == 200 for request in seen[before:]))
    assert not leader.lost.is_set()
    leader.end()


@pytest.mark.parametrize("days", [-1, 1])
def test_a_wall_clock_that_is_wrong_changes_nothing(cluster: Cluster, unique: str, days: int) -> None:
    wrong: Callable[[], datetime] = lambda: datetime.now(UTC) + timedelta(days=days)  # noqa: E731
    first = Candidate(cluster, unique, "first", lease_seconds=NEVER_IN_THIS_TEST, now=wrong).start()
    assert first.leading.wait(GENEROUS_SECONDS)
    second = Candidate(cluster, unique, "second", lease_seconds=NEVER_IN_THIS_TEST).start()
    second.wait_for_attempts(4)
    assert not second.leading.is_set()
    assert not first.lost.is_set()
    first.end()
    second.end()


def test_a_leader_that_slept_with_its_machine_knows_that_its_time_is_over(cluster: Cluster, unique: str) -> None:
    clock = JumpingClock()
    arguments = {"lease_seconds": NEVER_IN_THIS_TEST, "renew_deadline_seconds": 600, "retry_seconds": 500}
    leader = Candidate(cluster, unique, "first", clock=clock, **arguments).start()
    assert leader.leading.wait(GENEROUS_SECONDS)
    clock.jump_seconds = 601
    assert leader.lost.wait(GENEROUS_SECONDS)
    leader.stop.set()


def test_the_time_that_a_renewal_takes_counts_against_the_leadership(
    proxy: FaultInjectingProxy, faulty: Cluster, unique: str
) -> None:
    clock, held_up, released = JumpingClock(), threading.Event(), threading.Event()
    renewals = iter(("answered", "held up"))

    def take_long(request: Seen) -> None:
        renewal = next(renewals, None) if request.method == "PUT" else None
        if renewal == "answered":
            clock.jump_seconds += 400
        elif renewal == "held up":
            clock.jump_seconds += 300  # 700 s after the request of the first renewal, 300 s after its answer
            held_up.set()
            released.wait(GENEROUS_SECONDS)

    proxy.inject(take_long)
    leader = Candidate(faulty, unique, "first", lease_seconds=NEVER_IN_THIS_TEST, clock=clock).start()
    assert held_up.wait(GENEROUS_SECONDS)
    reads = clock.reads
    while not leader.lost.wait(0.02):
        assert clock.reads < reads + 4, "it leads for longer than the renew deadline"
    released.set()
    leader.end()


def test_a_crashed_leader_is_followed_after_its_lease(cluster: Cluster, unique: str) -> None:
    spec = {"holderIdentity": "crashed", "leaseDurationSeconds": 1, "leaseTransitions": 7}
    cluster.create(LEASES, {"metadata": {"name": unique, "namespace": NAMESPACE}, "spec": spec})
    second = Candidate(cluster, unique, "second").start()
    assert second.leading.wait(GENEROUS_SECONDS)
    assert lease_of(cluster, unique)["leaseTransitions"] == 8
    second.end()


def test_a_lease_that_says_it_lasts_for_ever_is_taken_over(cluster: Cluster, unique: str) -> None:
    clock = JumpingClock()
    _held_by_nobody_who_renews(cluster, unique, says_seconds=2**31 - 1)
    candidate = Candidate(cluster, unique, "second", lease_seconds=NEVER_IN_THIS_TEST, clock=clock).start()
    candidate.wait_for_attempts(2)
    clock.jump_seconds = 3.5 * NEVER_IN_THIS_TEST
    candidate.wait_for_attempts(3)
    assert not candidate.leading.is_set()
    clock.jump_seconds = 4.5 * NEVER_IN_THIS_TEST
    assert candidate.leading.wait(GENEROUS_SECONDS)
    candidate.end()


def test_a_lease_that_is_longer_than_the_own_one_is_waited_for(cluster: Cluster, unique: str) -> None:
    clock = JumpingClock()
    _held_by_nobody_who_renews(cluster, unique, says_seconds=3 * NEVER_IN_THIS_TEST)
    candidate = Candidate(cluster, unique, "second", lease_seconds=NEVER_IN_THIS_TEST, clock=clock).start()
    candidate.wait_for_attempts(2)
    clock.jump_seconds = 2 * NEVER_IN_THIS_TEST
    candidate.wait_for_attempts(3)
    assert not candidate.leading.is_set()
    clock.jump_seconds = 3.5 * NEVER_IN_THIS_TEST
    assert candidate.leading.wait(GENEROUS_SECONDS)
    candidate.end()


def _held_by_nobody_who_renews(cluster: Cluster, name: str, *, says_seconds: int) -> None:
    spec = {"holderIdentity": "another", "leaseDurationSeconds": says_seconds}
    cluster.create(LEASES, {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})


def test_two_processes_with_one_identity_do_not_both_lead(cluster: Cluster, unique: str) -> None:
    first = Candidate(cluster, unique, "same", lease_seconds=NEVER_IN_THIS_TEST).start()
    assert first.leading.wait(GENEROUS_SECONDS)
    second = Candidate(cluster, unique, "same", lease_seconds=NEVER_IN_THIS_TEST).start()
    second.wait_for_attempts(4)
    assert not second.leading.is_set()
    second.end()
    first.end()


def test_a_foreign_touch_of_the_lease_does_not_end_the_leadership_but_a_new_holder_does(
    cluster: Cluster, proxy: FaultInjectingProxy, faulty: Cluster, unique: str
) -> None:
    leader = Candidate(faulty, unique, "first", lease_seconds=NEVER_IN_THIS_TEST).start()
    assert leader.leading.wait(GENEROUS_SECONDS)
    cluster.patch(LEASES, unique, {"metadata": {"labels": {"touched": "yes"}}}, namespace=NAMESPACE)
    proxy.wait_until(lambda seen: any(request.status == 409 for request in seen))
    before = len(proxy.seen())
    proxy.wait_until(lambda seen: [request.status for request in seen[before:]].count(200) > 2)
    assert not leader.lost.is_set()
    cluster.patch(LEASES, unique, {"spec": {"holderIdentity": "usurper"}}, namespace=NAMESPACE)
    assert leader.lost.wait(GENEROUS_SECONDS)
    leader.end()
    assert lease_of(cluster, unique)["holderIdentity"] == "usurper"


def test_work_that_raises_hands_the_lease_back(cluster: Cluster, unique: str) -> None:
    def broken(lost: threading.Event) -> None:
        raise RuntimeError("broken on purpose")

    elector = LeaderElector(cluster, namespace=NAMESPACE, name=unique, identity="first")
    with pytest.raises(RuntimeError, match="broken on purpose"):
        elector.run(threading.Event(), broken)
    assert lease_of(cluster, unique)["holderIdentity"] == ""


def test_times_that_would_allow_two_leaders_are_refused(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="retry < renew deadline < lease time"):
        LeaderElector(cluster, namespace=NAMESPACE, name="a", identity="b", lease_seconds=10, renew_deadline_seconds=10)
