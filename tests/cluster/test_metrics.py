"""What Prometheus reads, by HTTP; and the alerts that are made of it."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from prometheus_client import generate_latest, make_wsgi_app

from provisioner.api import Condition, NodePool, ObjectMeta
from provisioner.api.machinery.codec import encode
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.pools.node_pool import NodePoolSpec, NodePoolStatus
from provisioner.api.pools.rollout_status import (
    JobTally,
    RolloutOutcome,
    RolloutRecord,
    RolloutStage,
    RolloutStatus,
    RolloutStop,
    WaitCount,
    WorkloadComparison,
)
from provisioner.api.pools.upgrade_strategy import UpgradeStrategy
from provisioner.cli.service.controller import NAMES
from provisioner.cluster.metrics import Meters
from provisioner.cluster.metrics_server import serve_in_background
from provisioner.cluster.source import KeysOf
from provisioner.health.look import ALL_CHECKS
from provisioner.maintenance.status.verdict import FINAL_PHASE_OF
from provisioner.outbound.bulkhead import Bulkhead, LanePolicy
from tests.cluster.scanned_index import ScannedIndex

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "docs" / "prometheus-alerts.yaml"
NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)


class FakeCache:
    """An informer whose objects a test changes."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self._objects = {o["metadata"]["name"]: o for o in objects}
        self._handlers: list[Any] = []

    def get(self, name: str) -> Any:
        return self._objects.get(name)

    def items(self) -> list[Any]:
        return list(self._objects.values())

    def index(self, keys_of: KeysOf) -> ScannedIndex:
        return ScannedIndex(self.items, keys_of)

    def subscribe(self, handler: Any) -> None:
        self._handlers.append(handler)
        for key, found in self._objects.items():
            handler(key, None, found)

    def put(self, new: dict[str, Any]) -> None:
        key = new["metadata"]["name"]
        old, self._objects[key] = self._objects.get(key), new
        for handler in self._handlers:
            handler(key, old, new)


def server(name: str = "r01-u01", **status: Any) -> dict[str, Any]:
    spec = {"bootMACAddress": "52:54:00:80:01:01", "nodePoolRef": "gpu"}
    return {"metadata": {"name": name}, "spec": spec, "status": {"lifecycle": "InProduction", **status}}


def maintenance(name: str, phase: str, **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": "2026-01-02T11:00:00Z"}
    return {"metadata": metadata, "spec": {"serverRef": "r01-u01"}, "status": {"phase": phase, **status}}


def pool(
    name: str = "gpu",
    *,
    begun: datetime | None = None,
    completed: bool = False,
    stopped: Literal["Failures", "Workloads"] | None = None,
    paused: bool = False,
    stage: RolloutStage = "Rest",
    waits: Mapping[str, int] | None = None,
    jobs: Sequence[int] = (),
    history: tuple[RolloutRecord, ...] = (),
    **status: Any,
) -> dict[str, Any]:
    """A NodePool as the API server has it, with a rollout since `begun` in its status; none without that. jobs: how
    many ended and failed on the old image, and on the new one."""
    rollout = None
    if begun is not None:
        time, compared = rfc3339(begun), None
        if jobs:
            old, new = JobTally(ended=jobs[0], failed=jobs[1]), JobTally(ended=jobs[2], failed=jobs[3])
            compared = WorkloadComparison(old=old, new=new, counted_time=time, message="…")
        rollout = RolloutStatus(
            image_ref="new",
            started_time=time,
            completed_time=time if completed else None,
            stage=stage,
            stopped=RolloutStop(time=time, reason=stopped, message="…") if stopped else None,
            waits=tuple(WaitCount(reason=reason, count=count) for reason, count in (waits or {}).items()),
            workloads=compared,
            expected_time=status.pop("expected", None),
        )
    return encode(
        NodePool(
            metadata=ObjectMeta(name=name),
            spec=NodePoolSpec(image_ref="new", upgrade_strategy=UpgradeStrategy(paused=paused)),
            status=NodePoolStatus(rollout=rollout, history=history, **status),
        )
    )


def new_meters() -> Meters:
    return Meters(causes=FINAL_PHASE_OF.items(), checks=ALL_CHECKS, groups=NAMES, now=lambda: NOON)


def scrape(meters: Meters) -> dict[str, float]:
    """Every sample, by its name with labels, as Prometheus would read it."""
    lines = generate_latest(meters.registry).decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def test_what_is_counted_is_answered_by_http() -> None:
    meters = new_meters()
    port = serve_in_background(make_wsgi_app(meters.registry), "127.0.0.1", 0).server_port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=120) as answer:
        told = answer.read().decode()
    assert "# TYPE provisioner_leads gauge" in told


def test_backends_that_are_given_up_are_named_without_secrets_and_the_number_of_series_is_bounded() -> None:
    meters, bulkhead = new_meters(), Bulkhead("slurmrestd", LanePolicy(failures=1))
    meters.watch(bulkhead)
    for number in range(60):
        with suppress(TimeoutError), bulkhead.call(f"https://root:secret@slurm-{number:02}.example:6820/path"):
            raise TimeoutError
    with bulkhead.call("https://well.example"):
        found = {name: value for name, value in scrape(meters).items() if name.startswith("provisioner_backend")}
    assert found.pop('provisioner_backends_given_up{kind="slurmrestd"}') == 60
    assert found.pop('provisioner_backend_calls{kind="slurmrestd"}') == 1
    assert found['provisioner_backend_given_up{backend="slurm-00.example:6820",kind="slurmrestd"}'] == 1
    assert len(found) == 50
    assert "secret" not in str(found)
    meters.yield_lead()
    assert not [name for name in scrape(meters) if name.startswith("provisioner_backend")]


def test_what_the_executor_tells_is_read_by_phase_blocker_method_and_end() -> None:
    meters = new_meters()
    meters.maintenance.phase_ended("Draining", "Reboot", 42)
    meters.maintenance.wait_ended("PodDisruptionBudget", 700)
    meters.maintenance.attempt_ended("Kexec", "TimedOut", 180)
    meters.maintenance.finished("Failed", "RebootFailed", "Reboot", "WhenIdle", 5000)
    found = scrape(meters)
    assert found['provisioner_maintenance_phase_seconds_sum{action="Reboot",phase="Draining"}'] == 42
    assert found['provisioner_maintenance_wait_seconds_bucket{blocker="PodDisruptionBudget",le="900.0"}'] == 1
    assert found['provisioner_maintenance_wait_seconds_bucket{blocker="PodDisruptionBudget",le="600.0"}'] == 0
    assert found['provisioner_reboot_attempt_seconds_count{method="Kexec",outcome="TimedOut"}'] == 1
    assert found['provisioner_maintenance_seconds_count{action="Reboot",phase="Failed",policy="WhenIdle"}'] == 1
    assert found['provisioner_maintenances_ended_total{phase="Failed",reason="RebootFailed"}'] == 1


def test_servers_and_maintenances_are_counted_when_asked_and_only_while_leading() -> None:
    meters = new_meters()
    blockers = [{"kind": "Pod", "name": "a"}, {"kind": "Pod", "name": "b"}, {"kind": "Budget", "name": "gpu"}]
    timeline = [{"phase": "Waiting", "time": "2026-01-02T11:50:00.000000Z"}]
    active = maintenance("m-2", "Waiting", blockers=blockers, timeline=timeline)
    servers = FakeCache(server(), server("r01-u02", lifecycle="Held"))
    maintenances = FakeCache(maintenance("m-1", "Completed"), active, maintenance("m-3", "Waiting"))
    meters.follow(servers, maintenances, FakeCache(), FakeCache())
    found = scrape(meters)
    assert found['provisioner_servers{lifecycle="InProduction",pool="gpu"}'] == 1
    assert found['provisioner_servers{lifecycle="Held",pool="gpu"}'] == 1
    assert found['provisioner_maintenances_active{phase="Waiting",pool="gpu"}'] == 2
    assert found['provisioner_maintenances_blocked{blocker="Pod",pool="gpu"}'] == 1
    assert found['provisioner_maintenance_oldest_phase_seconds{phase="Waiting",pool="gpu"}'] == 3600
    meters.yield_lead()
    found = scrape(meters)
    assert not any(name.startswith("provisioner_servers") for name in found)


def test_who_leads_is_told_of_each_group_that_a_replica_runs_and_of_no_other() -> None:
    meters = Meters(causes=(), checks=(), groups=("join", "power"))

    def told() -> dict[str, float]:
        return {name: value for name, value in scrape(meters).items() if name.startswith("provisioner_leads")}

    assert told() == {'provisioner_leads{group="join"}': 0, 'provisioner_leads{group="power"}': 0}
    meters.lead()
    assert told() == {'provisioner_leads{group="join"}': 1, 'provisioner_leads{group="power"}': 1}
    meters.yield_lead()
    assert set(told().values()) == {0}


@pytest.mark.parametrize(
    ("reason", "status", "state"),
    [
        ("On", "True", "Well"),
        ("SlowBMC", "True", "SlowBMC"),
        ("BMCUnreachable", "Unknown", "BMCUnreachable"),
        ("BMCCutOff", "Unknown", "BMCCutOff"),
        ("ForeignLink", "Unknown", "ForeignLink"),
        ("CredentialsRefused", "Unknown", "Refused"),
        ("NotAccepted", "Unknown", "NotAsked"),
        ("Duplicate", "Unknown", "NotAsked"),
        ("x" * 99, "True", "Well"),
    ],
)
def test_bmcs_are_counted_by_how_they_answer(reason: str, status: str, state: str) -> None:
    meters = new_meters()
    one = server(conditions=[{"type": "PoweredOn", "status": status, "reason": reason}])
    one["spec"]["bmc"] = {"address": "https://10.90.0.11"}
    meters.follow(FakeCache(one, server("without")), FakeCache(), FakeCache(), FakeCache())
    found = {name: count for name, count in scrape(meters).items() if name.startswith("provisioner_bmcs")}
    assert found.pop(f'provisioner_bmcs{{state="{state}"}}') == 1
    assert len(found) == 6
    assert set(found.values()) == {0}


def test_racks_whose_cache_is_out_are_counted() -> None:
    def rack(name: str, *conditions: tuple[str, str]) -> dict[str, Any]:
        said = [{"type": type_, "status": status} for type_, status in conditions]
        return {"metadata": {"name": name}, "status": {"conditions": said}}

    meters = new_meters()
    racks = FakeCache(rack("a", ("CacheAvailable", "False")), rack("b", ("CacheAvailable", "True"), ("Ready", "False")))
    meters.follow(FakeCache(), FakeCache(), FakeCache(), racks)
    assert scrape(meters)["provisioner_racks_with_cache_out"] == 1
    racks.put(rack("a", ("CacheAvailable", "True")))
    assert scrape(meters)["provisioner_racks_with_cache_out"] == 0


def test_boots_and_checks_are_counted_once_and_not_again_by_the_next_leader() -> None:
    meters = new_meters()
    order = {"id": "o1", "reason": "FirstBoot", "orderedTime": "2026-01-02T11:00:00Z", "attempt": 1}
    servers = FakeCache(server(order=order))
    meters.follow(servers, FakeCache(), FakeCache(), FakeCache())
    again = order | {"id": "o2", "reason": "Requested", "orderedTime": "2026-01-02T11:30:00Z"}
    checks = [{"name": "Clock", "result": "Passed"}, {"name": "gpu-burn", "result": "Failed"}]
    decided = {"attempt": 1, "bootID": "b", "finishedTime": "2026-01-02T11:33:00Z", "checks": checks}
    known = {"order": again, "power": {"orderID": "o2", "orderTime": "2026-01-02T11:30:01Z"}}
    ready = "2026-01-02T11:31:01Z"
    for status in ({}, {"readyTime": ready}, {"readyTime": ready, "verification": decided}):
        servers.put(server(**known, **status))
        servers.put(server(**known, **status))
    found = scrape(meters)
    assert found['provisioner_boots_ordered_total{reason="Requested"}'] == 1
    assert found['provisioner_boots_ordered_total{reason="FirstBoot"}'] == 0
    assert found['provisioner_boot_stage_seconds_sum{stage="Firmware"}'] == 60
    assert (found["provisioner_boot_seconds_count"], found["provisioner_boot_seconds_sum"]) == (1, 60)
    assert found['provisioner_checks_total{check="gpu-burn",result="Failed"}'] == 1
    assert found['provisioner_checks_total{check="Clock",result="Passed"}'] == 1


def rollouts(meters: Meters) -> dict[str, float]:
    """What is told of rollouts, without what is 0."""
    found = {name: value for name, value in scrape(meters).items() if "_created" not in name and value}
    return {name: value for name, value in found.items() if name.startswith("provisioner_rollout")}


def follow_pools(*bodies: dict[str, Any]) -> tuple[Meters, FakeCache]:
    meters, pools = new_meters(), FakeCache(*bodies)
    meters.follow(FakeCache(), FakeCache(), pools, FakeCache())
    return meters, pools


def test_a_rollout_under_way_is_told_by_pool_with_all_that_its_status_says() -> None:
    counts = {"desired": 11, "updated": 3, "updating": 1, "waiting": 4, "left_alone": 1, "failed": 1, "unavailable": 3}
    hour = NOON - timedelta(hours=1)
    expected = "2026-01-02T13:00:00Z"
    wave = pool(begun=hour, stage="Wave", waits={"Job": 3}, jobs=(40, 2, 20, 5), expected=expected, **counts)
    meters, _ = follow_pools(wave)
    assert rollouts(meters) == {
        'provisioner_rollout_servers{pool="gpu",state="Updated"}': 3,
        'provisioner_rollout_servers{pool="gpu",state="Updating"}': 1,
        'provisioner_rollout_servers{pool="gpu",state="Waiting"}': 4,
        'provisioner_rollout_servers{pool="gpu",state="LeftAlone"}': 1,
        'provisioner_rollout_servers{pool="gpu",state="Failed"}': 1,
        'provisioner_rollout_servers{pool="gpu",state="Down"}': 1,
        'provisioner_rollout_servers_desired{pool="gpu"}': 11,
        'provisioner_rollout_servers_unavailable{pool="gpu"}': 3,
        'provisioner_rollout_waits{pool="gpu",reason="Job"}': 3,
        'provisioner_rollout_stage{pool="gpu",stage="Wave"}': 1,
        'provisioner_rollout_jobs_ended{image="Old",pool="gpu"}': 40,
        'provisioner_rollout_jobs_failed{image="Old",pool="gpu"}': 2,
        'provisioner_rollout_jobs_ended{image="New",pool="gpu"}': 20,
        'provisioner_rollout_jobs_failed{image="New",pool="gpu"}': 5,
        'provisioner_rollout_age_seconds{pool="gpu"}': 3600,
        'provisioner_rollout_expected_completion_timestamp_seconds{pool="gpu"}': NOON.timestamp() + 3600,
    }
    meters.yield_lead()
    assert not rollouts(meters)


def test_a_rollout_that_is_complete_has_neither_stage_nor_age_and_a_pool_without_one_is_told_of_all_the_same() -> None:
    done = pool(begun=NOON, completed=True, desired=2, updated=2, unavailable=0)
    meters, _ = follow_pools(done, pool("cpu"))
    assert rollouts(meters) == {
        'provisioner_rollout_servers{pool="gpu",state="Updated"}': 2,
        'provisioner_rollout_servers_desired{pool="gpu"}': 2,
    }
    found = scrape(meters)
    assert found['provisioner_rollout_stopped{pool="cpu",reason="Failures"}'] == 0
    assert 'provisioner_rollout_age_seconds{pool="gpu"}' not in found
    assert 'provisioner_rollout_servers_desired{pool="cpu"}' not in found


def test_a_rollout_that_stopped_itself_is_told_by_its_reason_and_one_that_a_person_paused_as_such() -> None:
    capped = Condition(
        type="Paused", status="True", reason="Requested", message="maxParallel is 0", last_transition_time=rfc3339(NOON)
    )
    stopped = pool("a", begun=NOON, stopped="Failures")
    meters, _ = follow_pools(stopped, pool("b", begun=NOON, paused=True), pool("c", conditions=(capped,)))
    told = {name for name in rollouts(meters) if "_stopped" in name or "_paused" in name}
    assert told == {
        'provisioner_rollout_stopped{pool="a",reason="Failures"}',
        'provisioner_rollout_paused{pool="b"}',
        'provisioner_rollout_paused{pool="c"}',
    }


def test_a_pool_that_cannot_be_read_hides_no_other() -> None:
    meters, _ = follow_pools({"metadata": {"name": "broken"}, "spec": {}}, pool(desired=1, updated=1))
    assert rollouts(meters)['provisioner_rollout_servers_desired{pool="gpu"}'] == 1


def record(begun: datetime, outcome: RolloutOutcome, image: str = "new") -> RolloutRecord:
    return RolloutRecord(
        image_ref=image, started_time=rfc3339(begun), ended_time=rfc3339(NOON), outcome=outcome, updated=8, failed=0
    )


def test_rollouts_are_counted_as_they_begin_stop_and_end_each_once_and_not_again_by_the_next_leader() -> None:
    before = (record(NOON - timedelta(days=2), "Completed", "old"),)
    meters, pools = follow_pools(pool(history=before))
    counters = {name: value for name, value in scrape(meters).items() if name.startswith("provisioner_rollouts_")}
    counters = {name: value for name, value in counters.items() if "_created" not in name}
    assert set(counters.values()) == {0}
    assert len(counters) == 1 + 2 + 2

    def said() -> dict[str, float]:
        return {name: value for name, value in rollouts(meters).items() if name.startswith("provisioner_rollouts_")}

    began, stopped = pool(begun=NOON, history=before), pool(begun=NOON, stopped="Workloads", history=before)
    for body in (began, began, stopped, stopped):
        pools.put(body)
    assert said() == {
        'provisioner_rollouts_started_total{pool="gpu"}': 1,
        'provisioner_rollouts_stopped_total{pool="gpu",reason="Workloads"}': 1,
    }
    pools.put(began)
    pools.put(stopped)
    later = NOON + timedelta(hours=1)
    both = (record(later, "Completed"), record(NOON, "Superseded"), *before)
    pools.put(pool(begun=later, completed=True, history=both))
    assert said() == {
        'provisioner_rollouts_started_total{pool="gpu"}': 2,
        'provisioner_rollouts_stopped_total{pool="gpu",reason="Workloads"}': 2,
        'provisioner_rollouts_ended_total{outcome="Superseded",pool="gpu"}': 1,
        'provisioner_rollouts_ended_total{outcome="Completed",pool="gpu"}': 1,
    }
    meters.yield_lead()
    meters.follow(FakeCache(), FakeCache(), pools, FakeCache())
    assert sum(said().values()) == 6


def test_a_change_of_leader_keeps_the_counts_and_follows_anew() -> None:
    meters = new_meters()
    for _ in range(2):
        meters.follow(FakeCache(server()), FakeCache(), FakeCache(), FakeCache())
        meters.yield_lead()
    meters.follow(FakeCache(server()), FakeCache(), FakeCache(), FakeCache())
    assert scrape(meters)['provisioner_servers{lifecycle="InProduction",pool="gpu"}'] == 1
