"""What is measured of rollouts, from what the rollout writes into the status of NodePools.

`RolloutMeter` counts what changes: rollouts that began, ended, stopped themselves. `rollout_families` tells at each
scrape where each pool is. All of it is by pool; of a job or a server nothing is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, get_args, get_type_hints

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from provisioner.api import NodePool
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.machinery.conditions import find_condition
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.api.machinery.meta import read_time
from provisioner.api.pools.node_pool import NodePoolStatus
from provisioner.api.pools.rollout_status import RolloutOutcome, RolloutStage, RolloutStop
from provisioner.cluster.series import Values, born, gauge, new_counter
from provisioner.cluster.source import Json, Source

OUTCOMES: Final = get_args(RolloutOutcome)
STAGES: Final = get_args(RolloutStage)
STOP_REASONS: Final = get_args(get_type_hints(RolloutStop)["reason"])


class RolloutMeter:
    """Counts of rollouts; `follow` the pools anew for each leadership."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._started = new_counter(registry, "rollouts_started", "Rollouts that began.", ("pool",))
        words = "Rollouts that are over, by how: all servers had the image, or another image took its place."
        self._ended = new_counter(registry, "rollouts_ended", words, ("pool", "outcome"))
        words = "Rollouts that stopped themselves."
        self._stopped = new_counter(registry, "rollouts_stopped", words, ("pool", "reason"))

    def follow(self, pools: Source) -> None:
        """Count what changes from now on; what is there already was counted by who led before."""
        pools.subscribe(self._pool_changed)

    def _pool_changed(self, name: str, old: Json | None, new: Json | None) -> None:
        if new is None:
            return
        born(self._started, (name,))
        born(self._ended, (name,), OUTCOMES)
        born(self._stopped, (name,), STOP_REASONS)
        if old is None:
            return
        before, after = old.get("status") or {}, new.get("status") or {}
        was, is_ = before.get("rollout") or {}, after.get("rollout") or {}
        if is_.get("startedTime") and _key(is_) != _key(was):
            self._started.labels(name).inc()
        stop = is_.get("stopped") or {}
        if stop.get("time") and (_key(is_), stop["time"]) != (_key(was), (was.get("stopped") or {}).get("time")):
            self._stopped.labels(name, str(stop.get("reason"))).inc()
        known = {_key(record) for record in before.get("history") or ()}
        for record in after.get("history") or ():
            if _key(record) not in known:
                self._ended.labels(name, str(record.get("outcome"))).inc()


def rollout_families(pools: Source, now: datetime) -> Iterable[Metric]:
    """Where each pool is on its way to its image."""
    readable = list(_readable(pools))
    yield from _servers(readable)
    yield from _progress(readable)
    yield from _jobs(readable)
    yield from _times(readable, now)


def _readable(pools: Source) -> Iterator[NodePool]:
    for body in pools.items():
        try:
            yield decode_shared(NodePool, body)
        except ProvisionerError:
            continue


def _servers(pools: Iterable[NodePool]) -> Iterator[Metric]:
    states: Values = {}
    desired: Values = {}
    unavailable: Values = {}
    waits: Values = {}
    for pool in pools:
        status = pool.status
        if status.desired is not None:
            states |= {(pool.name, state): count for state, count in _states(status).items()}
            desired[(pool.name,)] = status.desired
            unavailable[(pool.name,)] = status.unavailable or 0
        for wait in status.rollout.waits if status.rollout is not None else ():
            waits[pool.name, wait.reason] = wait.count
    words = "Servers by how far they are on their way to their pool's image; their sum is all that are desired."
    yield gauge("rollout_servers", words, ("pool", "state"), states)
    yield gauge("rollout_servers_desired", "Accepted servers of the pool that are to be on.", ("pool",), desired)
    words = "Servers that are not in use, whatever the reason."
    yield gauge("rollout_servers_unavailable", words, ("pool",), unavailable)
    words = "Servers without the pool's image whose turn has not come, by what they wait for."
    yield gauge("rollout_waits", words, ("pool", "reason"), waits)


def _states(status: NodePoolStatus) -> dict[str, int]:
    """Down: what is left, out of use for another reason or not joined."""
    counts = {
        "Updated": status.updated or 0,
        "Updating": status.updating or 0,
        "Waiting": status.waiting or 0,
        "LeftAlone": status.left_alone or 0,
        "Failed": status.failed or 0,
    }
    return {**counts, "Down": max(0, (status.desired or 0) - sum(counts.values()))}


def _progress(pools: Iterable[NodePool]) -> Iterator[Metric]:
    stages: Values = {}
    stopped: Values = {}
    paused: Values = {}
    for pool in pools:
        rollout = pool.status.rollout
        stage = rollout.stage if rollout is not None and rollout.completed_time is None else None
        stop = rollout.stopped if rollout is not None else None
        stages |= {(pool.name, each): float(each == stage) for each in STAGES}
        stopped |= {(pool.name, each): float(stop is not None and stop.reason == each) for each in STOP_REASONS}
        paused[(pool.name,)] = float(_is_paused(pool))
    words = "1 for the stage that the rollout under way is at, 0 for the others."
    yield gauge("rollout_stage", words, ("pool", "stage"), stages)
    words = "1 if the rollout stopped itself for that reason and waits for a person, else 0."
    yield gauge("rollout_stopped", words, ("pool", "reason"), stopped)
    yield gauge("rollout_paused", "1 if a person has paused the pool's rollouts, else 0.", ("pool",), paused)


def _is_paused(pool: NodePool) -> bool:
    """Whether spec.upgradeStrategy says so, by `paused` or by a cap of 0."""
    said = find_condition(pool.status.conditions, "Paused")
    by_cap = said is not None and (said.status, said.reason) == ("True", "Requested")
    return pool.spec.upgrade_strategy.paused or by_cap


def _jobs(pools: Iterable[NodePool]) -> Iterator[Metric]:
    ended: Values = {}
    failed: Values = {}
    for pool in pools:
        compared = pool.status.rollout.workloads if pool.status.rollout is not None else None
        if compared is not None:
            for image, tally in (("Old", compared.old), ("New", compared.new)):
                ended[pool.name, image] = tally.ended
                failed[pool.name, image] = tally.failed
    words = "Jobs that have ended since the pool's last rollout began, on servers with another image (Old) or its own."
    yield gauge("rollout_jobs_ended", words, ("pool", "image"), ended)
    yield gauge("rollout_jobs_failed", "Those of them that failed.", ("pool", "image"), failed)


def _times(pools: Iterable[NodePool], now: datetime) -> Iterator[Metric]:
    ages: Values = {}
    expected: Values = {}
    for pool in pools:
        rollout = pool.status.rollout
        if rollout is None or rollout.completed_time is not None:
            continue
        began, end = read_time(rollout.started_time), read_time(rollout.expected_time)
        if began is not None:
            ages[(pool.name,)] = max(0.0, (now - began).total_seconds())
        if end is not None:
            expected[(pool.name,)] = end.timestamp()
    words = "How long ago the rollout began; only while one is under way."
    yield gauge("rollout_age_seconds", words, ("pool",), ages)
    words = "When the rollout under way is expected to be complete, in seconds since 1970; only while that is known."
    yield gauge("rollout_expected_completion_timestamp_seconds", words, ("pool",), expected)


def _key(rollout: Json) -> tuple[Any, Any]:
    """What tells a rollout, or the record of one, from others of its pool."""
    return rollout.get("startedTime"), rollout.get("imageRef")
