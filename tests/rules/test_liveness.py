"""Whether a Node is alive, as tables: three clocks date its Lease, and any of the first two may be wrong."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from provisioner.api.machinery.meta import rfc3339_micro
from provisioner.cluster.client import Cluster
from provisioner.cluster.resources import LEASES, NODE_LEASES
from provisioner.rules.liveness import Heartbeat, LeaseSighting, LeaseWatch, read_heartbeat, read_life

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
HOUR: Final = 3600.0


def ago(seconds: float) -> str:
    return rfc3339_micro(NOW - timedelta(seconds=seconds))


def lease(renewed: float | None, written: float | None = None, duration: Any = 40) -> dict[str, Any]:
    """`renewed` and `written` so many seconds ago: by the node's clock, and by the API server's."""
    fields = [{"manager": "kubelet", "time": ago(written)}] if written is not None else []
    spec = {"leaseDurationSeconds": duration} | ({"renewTime": ago(renewed)} if renewed is not None else {})
    return {"metadata": {"managedFields": fields}, "spec": spec}


def node(ready: str | None = "Unknown", boot_id: str | None = "B1") -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    return {"metadata": {"name": "n"}, "status": {"conditions": conditions, "nodeInfo": {"bootID": boot_id or ""}}}


RENEWED = "its kubelet renewed its Lease less than 25 s ago"
READY = "it is Ready in boot b1"


@pytest.mark.parametrize(
    ("sentence", "found", "beside", "said"),
    [
        ("Ready is alive", node("True"), None, READY),
        ("Ready is alive, however old its Lease", node("True"), lease(HOUR, HOUR), READY),
        ("without a Lease nothing but Ready shows life", node("False"), None, None),
        ("a fresh Lease is alive, whatever else is said", node("Unknown"), lease(24.9), RENEWED),
        ("a stale one is not", node("Unknown"), lease(25.1), None),
        ("a Lease that was never renewed is none", node("Unknown"), lease(None, 1), None),
        ("a clock an hour ahead shows no life by itself", node("Unknown"), lease(-HOUR, HOUR), None),
        ("but the API server's date does", node("Unknown"), lease(-HOUR, 24), RENEWED),
        ("also for a clock an hour behind", node("False"), lease(HOUR, 24), RENEWED),
        ("a clock a bit ahead is believed", node("Unknown"), lease(-24.9), RENEWED),
        ("a Node that no kubelet reported to is for the boot to come", node(None, None), lease(1, 1), None),
        ("also once the node controller called it Unknown", node("Unknown", None), lease(1, 1), None),
        ("one that says False was reported to", node("False", None), lease(1), RENEWED),
    ],
)
def test_one_read_tells(sentence: str, found: dict[str, Any], beside: dict[str, Any] | None, said: str | None) -> None:
    life = read_life(found, beside)
    assert life is not None
    assert (life.sign_of_life(NOW), life.is_alive(NOW)) == (said, said is not None), sentence


@pytest.mark.parametrize(
    ("sentence", "beside", "sighting", "alive", "heard"),
    [
        ("a Lease seen to change is alive by any clock", lease(HOUR), LeaseSighting(24.9, moved=True), True, True),
        ("until it has not changed for the fresh time", lease(HOUR), LeaseSighting(25.1, moved=True), False, False),
        ("one an hour ahead dies as any other", lease(-HOUR), LeaseSighting(25.1, moved=True), False, False),
        ("one that was only begun to look at cannot tell yet", lease(HOUR), LeaseSighting(1, moved=False), True, False),
        ("and tells then", lease(HOUR), LeaseSighting(26, moved=False), False, False),
        ("a slower Lease has its own time", lease(HOUR, duration=160), LeaseSighting(99, moved=True), True, True),
        ("and an end", lease(HOUR, duration=160), LeaseSighting(101, moved=True), False, False),
    ],
)
def test_watching_tells_what_no_clock_can(
    sentence: str, beside: dict[str, Any], sighting: LeaseSighting, alive: bool, heard: bool
) -> None:
    life = read_life(node(), beside, sighting, NOW)
    assert life is not None
    assert (life.is_alive(NOW), life.was_heard(NOW)) == (alive, heard), sentence


@pytest.mark.parametrize(
    ("sentence", "duration", "seconds"),
    [
        ("the usual one", 40, 25),
        ("a pool's own, renewed every 40 s", 160, 100),
        ("a short one makes no node look dead", 1, 25),
        ("nor none", None, 25),
        ("nor one that is no number", "forever", 25),
        ("one for days does not make a dead node live for days", 2**31 - 1, 375),
    ],
)
def test_a_lease_is_fresh_in_the_measure_of_its_duration(sentence: str, duration: Any, seconds: float) -> None:
    heartbeat = read_heartbeat(lease(seconds - 0.1, duration=duration))
    assert heartbeat.is_fresh(NOW), sentence
    assert not heartbeat.is_fresh(NOW + timedelta(seconds=0.2)), sentence


@pytest.mark.parametrize(
    ("heartbeat", "last"),
    [
        (Heartbeat(), None),
        (Heartbeat(renewed=NOW - timedelta(hours=1)), NOW - timedelta(hours=1)),
        (Heartbeat(renewed=NOW + timedelta(hours=1)), None),
        (Heartbeat(renewed=NOW + timedelta(hours=1), written=NOW), NOW),
        (Heartbeat(renewed=NOW - timedelta(hours=1), seen=NOW), NOW),
    ],
)
def test_it_was_renewed_last_at_the_latest_moment_that_can_be(heartbeat: Heartbeat, last: datetime | None) -> None:
    assert heartbeat.last(NOW) == last


def test_a_lease_is_as_old_as_it_was_seen_whatever_its_clock_says() -> None:
    moment = [100.0]
    watch = LeaseWatch(lambda: moment[0])
    first = {"spec": {"renewTime": "1999-01-01T00:00:00.000000Z"}}
    assert watch.look("a", first) == LeaseSighting(0.0, moved=False)
    moment[0] = 130.0
    assert watch.look("a", first) == LeaseSighting(30.0, moved=False)
    assert watch.look("a", {"spec": {"renewTime": "1999-01-01T00:00:30.000000Z"}}) == LeaseSighting(0.0, moved=True)
    assert watch.look("b", first) == LeaseSighting(0.0, moved=False)
    assert watch.look("a", None) is None


def test_the_api_server_dates_each_renewal_whatever_the_kubelets_clock_says(cluster: Cluster, unique: str) -> None:
    """As client-go's Lease controller renews: it creates, then replaces the object."""
    behind = datetime.now(UTC) - timedelta(hours=1)
    spec = {"holderIdentity": unique, "leaseDurationSeconds": 40, "renewTime": rfc3339_micro(behind)}
    metadata = {"name": unique, "namespace": NODE_LEASES}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NODE_LEASES}}
    cluster.apply(namespace, manager="test")
    created = cluster.create(LEASES, body, namespace=NODE_LEASES)
    try:
        first = read_heartbeat(created)
        assert first.written is not None
        assert first.is_fresh(datetime.now(UTC))
        time.sleep(1.1)  # the date is in whole seconds
        later = rfc3339_micro(behind + timedelta(seconds=10))
        renewed = cluster.replace(LEASES, {**created, "spec": {**spec, "renewTime": later}})
        again = read_heartbeat(renewed)
        assert again.written is not None
        assert again.written > first.written
    finally:
        cluster.delete(LEASES, unique, namespace=NODE_LEASES)
