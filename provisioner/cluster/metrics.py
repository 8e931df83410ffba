"""What is measured, as Prometheus metrics. No label ever holds the name of a server, a job or a person.

Each series is there with the value 0 before its first event, as far as its labels can be known: `increase()` of a
series that is born with a 1 is 0, and the first failure would be in no alert.

`MaintenanceMeter` is told by the executor. `FleetMeter`
follows the caches: it counts what changes (boots, failed checks) and tells at each scrape how many servers and
Maintenances are where; of rollouts `rollout_metrics` does.
"""

from __future__ import annotations

import threading
from collections import Counter as Count
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final, get_args
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import Metric

from provisioner.api import Server
from provisioner.api.machinery.codec import decode
from provisioner.api.machinery.errors import ProvisionerError
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import (
    ACTIONS,
    FINAL_PHASES,
    POLICIES,
    AttemptOutcome,
    BlockerKind,
    MaintenancePhase,
    RebootMethod,
)
from provisioner.api.servers.boot_stage import BOOT_STAGES
from provisioner.api.servers.boot_timeline import boot_timeline
from provisioner.api.servers.server_status import OrderReason
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller_meter import ControllerMeter, LeaseMeter, certificate_ends, process_families
from provisioner.cluster.events import EventType
from provisioner.cluster.network_metrics import network_families
from provisioner.cluster.outcome_meter import OutcomeMeter, late_boots
from provisioner.cluster.process import Process
from provisioner.cluster.request_meter import RequestMeter
from provisioner.cluster.rollout_metrics import RolloutMeter, rollout_families
from provisioner.cluster.series import (
    PREFIX,
    Families,
    FamiliesCollector,
    Values,
    born,
    counts_of,
    gauge,
    new_counter,
    new_histogram,
    tell_process,
)
from provisioner.cluster.source import Json, Source, first_condition, spec_of
from provisioner.outbound.bulkhead import Bulkhead

SHORT: Final = (1, 5, 15, 30, 60, 120, 180, 300, 600, 900, 1800, 3600)
LONG: Final = (*SHORT, 3 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400, 14 * 86400)

MAX_BACKENDS: Final = 50
"""Of so many that are given up each has a series; how many there are is counted of all."""
BMC_STATES: Final = ("Well", "SlowBMC", "BMCUnreachable", "BMCCutOff", "ForeignLink", "Refused", "NotAsked")
"""Reasons of condition PoweredOn, and what all others come to."""
NOT_ASKED: Final = (None, "NotAccepted", "Duplicate")
"""Reasons with which a BMC is left alone; None is that of a new Server."""

CHECK_RESULTS: Final = ("Passed", "Failed", "Unknown")


class MaintenanceMeter:
    """What the executor tells. `causes`: why a Maintenance may have ended, and in which phase it is then."""

    def __init__(self, registry: CollectorRegistry, causes: Iterable[tuple[str, str]]) -> None:
        words = "How long Maintenances were in each phase."
        self._phases = new_histogram(registry, "maintenance_phase_seconds", words, ("phase", "action"), LONG)
        words = "How long something was waited for, by its kind."
        self._waits = new_histogram(registry, "maintenance_wait_seconds", words, ("blocker",), LONG)
        words = "How long each attempt at a reboot method took, by how it ended."
        self._attempts = new_histogram(registry, "reboot_attempt_seconds", words, ("method", "outcome"), SHORT)
        words = "How long Maintenances took from the request to their end, by how they ended."
        self._ends = new_histogram(registry, "maintenance_seconds", words, ("phase", "action", "policy"), LONG)
        words = "Maintenances that ended, by why."
        self._reasons = new_counter(registry, "maintenances_ended", words, ("phase", "reason"))
        born(self._phases, (p for p in get_args(MaintenancePhase) if p not in FINAL_PHASES), ACTIONS)
        born(self._waits, get_args(BlockerKind))
        born(self._attempts, get_args(RebootMethod), get_args(AttemptOutcome))
        born(self._ends, FINAL_PHASES, ACTIONS, POLICIES)
        for reason, phase in causes:
            self._reasons.labels(phase, reason)

    def phase_ended(self, phase: str, action: str, seconds: float) -> None:
        self._phases.labels(phase, action).observe(seconds)

    def wait_ended(self, blocker_kind: str, seconds: float) -> None:
        self._waits.labels(blocker_kind).observe(seconds)

    def attempt_ended(self, method: str, outcome: str, seconds: float) -> None:
        self._attempts.labels(method, outcome).observe(seconds)

    def finished(self, phase: str, reason: str, action: str, policy: str, seconds: float) -> None:
        self._ends.labels(phase, action, policy).observe(seconds)
        self._reasons.labels(phase, reason).inc()


class FleetMeter:
    """What the caches tell; `follow` them anew for each leadership. `checks`: names of those that every pool has."""

    def __init__(self, registry: CollectorRegistry, checks: Iterable[str]) -> None:
        self._boots = new_counter(registry, "boots_ordered", "Boots that were ordered, by reason.", ("reason",))
        words = "How long the stages of boots took that came to Ready."
        self._stages = new_histogram(registry, "boot_stage_seconds", words, ("stage",), SHORT)
        self._totals = new_histogram(registry, "boot_seconds", "From power-on to Ready.", (), SHORT)
        words = "Checks before use that were decided, by result."
        self._checks = new_counter(registry, "checks", words, ("check", "result"))
        born(self._boots, get_args(OrderReason))
        born(self._stages, BOOT_STAGES[:-1])
        born(self._checks, checks, CHECK_RESULTS)

    def follow(self, servers: Source, pools: Source) -> None:
        """Count what changes from now on; what is there already was counted by who led before."""
        pools.subscribe(self._pool_changed)
        servers.subscribe(self._server_changed)

    def _pool_changed(self, _key: str, _old: Json | None, new: Json | None) -> None:
        checks = spec_of(new).get("verification", {}).get("checks") or ()
        born(self._checks, (str(check.get("name")) for check in checks), CHECK_RESULTS)

    def _server_changed(self, _key: str, old: Json | None, new: Json | None) -> None:
        if old is None or new is None:
            return
        before, after = old.get("status") or {}, new.get("status") or {}
        order = after.get("order") or {}
        if order.get("id") and order["id"] != (before.get("order") or {}).get("id"):
            self._boots.labels(str(order.get("reason"))).inc()
        if after.get("readyTime") and after["readyTime"] != before.get("readyTime"):
            self._boot_ended(new)
        verification = after.get("verification") or {}
        finished = verification.get("finishedTime")
        if finished and finished != (before.get("verification") or {}).get("finishedTime"):
            for check in verification.get("checks") or ():
                self._checks.labels(str(check.get("name")), str(check.get("result"))).inc()

    def _boot_ended(self, server: Json) -> None:
        try:
            timeline = boot_timeline(decode(Server, server).status)
        except (ProvisionerError, ValueError):
            return
        for phase in timeline.phases:
            if phase.seconds is not None:
                self._stages.labels(phase.stage).observe(phase.seconds)
        if timeline.total_seconds is not None:
            self._totals.observe(timeline.total_seconds)


def fleet_families(servers: Source, maintenances: Source, racks: Source, now: datetime) -> Iterable[Metric]:
    """How many servers, Maintenances and caches are where."""
    lifecycles: Count[tuple[str, ...]] = Count(
        (_pool(s), str((s.get("status") or {}).get("lifecycle"))) for s in servers.items()
    )
    yield gauge("servers", "Servers by pool and lifecycle.", ("pool", "lifecycle"), lifecycles)
    phases: Count[tuple[str, ...]] = Count()
    blocked: Count[tuple[str, ...]] = Count()
    oldest: Values = {}
    for m in maintenances.items():
        status = m.get("status") or {}
        if status.get("phase") in FINAL_PHASES:
            continue
        pool = _pool(servers.get(spec_of(m).get("serverRef") or "") or {})
        phase = (pool, str(status.get("phase") or "New"))
        phases[phase] += 1
        oldest[phase] = max(oldest.get(phase, 0.0), _phase_age(m, now))
        for kind in {str(b.get("kind")) for b in status.get("blockers") or ()}:
            blocked[pool, kind] += 1
    yield gauge("maintenances_active", "Maintenances that have not ended.", ("pool", "phase"), phases)
    words = "How long the Maintenance that has been longest in a phase has been in it."
    yield gauge("maintenance_oldest_phase_seconds", words, ("pool", "phase"), oldest)
    words = "Maintenances that wait for something of that kind."
    yield gauge("maintenances_blocked", words, ("pool", "blocker"), blocked)
    bmcs = Count(_bmc_state(s) for s in servers.items() if spec_of(s).get("bmc"))
    yield gauge("bmcs", "Servers with a BMC, by how it answers.", ("state",), counts_of(bmcs, BMC_STATES))
    out = sum(first_condition(rack, "CacheAvailable").get("status") == "False" for rack in racks.items())
    yield gauge("racks_with_cache_out", "Racks whose cache was taken out.", (), {(): out})


def _phase_age(maintenance: Json, now: datetime) -> float:
    status = maintenance.get("status") or {}
    began = maintenance["metadata"].get("creationTimestamp")
    for entry in reversed(status.get("timeline") or ()):
        if entry.get("phase") != status.get("phase"):
            break
        began = entry.get("time")
    try:
        return max(0.0, (now - parse_time(str(began))).total_seconds())
    except (TypeError, ValueError):
        return 0.0


def images_by_state(images: Source, pools: Source, servers: Source) -> Iterable[Metric]:
    """Images by whether a boot host has them; and those that are wanted and cannot be booted."""
    available = {str(image["metadata"]["name"]): _available(image) for image in images.items()}
    words = "Images by condition Available: whether a boot host has every file."
    states = counts_of(Count(available.values()), ("True", "False", "Unknown"))
    yield gauge("images", words, ("available",), states)
    wanted = {str(spec_of(pool).get("imageRef") or "") for pool in pools.items()}
    wanted |= {str((server.get("status") or {}).get("assignedImageRef") or "") for server in servers.items()}
    missing: Values = {("Absent",): 0, ("Unavailable",): 0}
    for name in wanted - {""}:
        if available.get(name) != "True":
            missing["Unavailable" if name in available else "Absent",] += 1
    words = "Images that a NodePool or a Server names and that cannot be booted: no such Image, or no boot host has it."
    yield gauge("images_missing", words, ("state",), missing)


def _available(image: Json) -> str:
    said = str(first_condition(image, "Available").get("status"))
    return said if said in ("True", "False") else "Unknown"


def backend_families(bulkheads: Iterable[Bulkhead]) -> Iterable[Metric]:
    """Which backends (slurmrestd…) are given up for a while, and how many calls to them are under way."""
    failing: Values = {}
    count: Values = {}
    calls: Values = {}
    for bulkhead in bulkheads:
        lanes = bulkhead.lanes()
        open_ = sorted(_host(key) for key, lane in lanes.items() if lane.breaker != "Closed")
        failing |= {(bulkhead.kind, host): 1 for host in open_[:MAX_BACKENDS]}
        count[(bulkhead.kind,)] = len(open_)
        calls[(bulkhead.kind,)] = sum(lane.calls for lane in lanes.values())
    words = f"1 for a backend that is asked less often, as it has failed; of each kind {MAX_BACKENDS} at most."
    yield gauge("backend_given_up", words, ("kind", "backend"), failing)
    yield gauge("backends_given_up", "Backends that are asked less often, as they have failed.", ("kind",), count)
    yield gauge("backend_calls", "Calls to backends that are under way.", ("kind",), calls)


def _host(url: str) -> str:
    """Host and port, without what else may be in a URL."""
    try:
        parts = urlsplit(url)
        return f"{parts.hostname or url[:80]}" + (f":{parts.port}" if parts.port is not None else "")
    except ValueError:
        return url[:80]


def _bmc_state(server: Json) -> str:
    """What condition PoweredOn says of the BMC, as one of BMC_STATES."""
    said = first_condition(server, "PoweredOn")
    if said.get("reason") in BMC_STATES:
        return str(said["reason"])
    if said.get("reason") in NOT_ASKED:
        return "NotAsked"
    return "Refused" if said.get("status") == "Unknown" else "Well"


def _pool(server: Json) -> str:
    """The NodePool that it is in, or shall be in where nothing runs."""
    running, wished = (server.get("status") or {}).get("nodePoolRef"), (server.get("spec") or {}).get("nodePoolRef")
    return str((running if wished else None) or wished or "")


class Meters:
    """All of them, and the address where Prometheus reads them."""

    def __init__(
        self,
        *,
        causes: Iterable[tuple[str, str]],
        checks: Iterable[str],
        groups: Iterable[str] = (),
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.registry = CollectorRegistry()
        tell_process(self.registry, "controller")
        self.requests = RequestMeter(self.registry)
        self.controllers = ControllerMeter(self.registry)
        self.leases = LeaseMeter(self.registry)
        self.outcomes = OutcomeMeter(self.registry)
        self.maintenance = MaintenanceMeter(self.registry, causes)
        self.fleet = FleetMeter(self.registry, checks)
        self.rollouts = RolloutMeter(self.registry)
        self._groups = tuple(groups)
        words = "1 for each group of controllers that this replica leads, 0 for those that it stands by for."
        self._leads = Gauge(f"{PREFIX}_leads", words, ("group",), registry=self.registry)
        born(self._leads, self._groups)
        words = "Events that were not written: too many waited, or the API server did not take them."
        self._dropped_events = new_counter(self.registry, "events_dropped", words, ("type",))
        born(self._dropped_events, get_args(EventType))
        self._now = now
        self._lock = threading.Lock()
        self._collectors: tuple[FamiliesCollector, ...] = ()
        self._bulkheads: tuple[Bulkhead, ...] = ()
        self.registry.register(FamiliesCollector(lambda: backend_families(self._bulkheads)))

    def watch(self, *bulkheads: Bulkhead) -> None:
        """Tell of these from here, in place of those that were watched of the same kind."""
        kinds = {each.kind for each in bulkheads}
        self._bulkheads = (*(each for each in self._bulkheads if each.kind not in kinds), *bulkheads)

    def lead(self) -> None:
        """This replica leads all the groups that it runs."""
        self._tell_who_leads(1)

    def tell_of(self, process: Process, cluster: Cluster) -> None:
        """Tell of the parts of this process, and of the certificates by which it reaches the API server."""
        self.registry.register(FamiliesCollector(lambda: process_families(process)))
        ends = {"api-server-ca": lambda: cluster.ca_pem, "client": lambda: cluster.client_certificate_pem}
        self.registry.register(FamiliesCollector(lambda: certificate_ends(ends)))

    def follow(
        self, servers: Source, maintenances: Source, pools: Source, racks: Source, images: Source | None = None
    ) -> None:
        """Count what is in these caches until `yield_lead`; one leader among all does."""
        self._register(lambda: fleet_families(servers, maintenances, racks, self._now()))
        self._register(lambda: rollout_families(pools, self._now()))
        self._register(lambda: late_boots(servers))
        if images is not None:
            self._register(lambda: images_by_state(images, pools, servers))
        self.fleet.follow(servers, pools)
        self.rollouts.follow(pools)
        self.outcomes.follow_servers(servers)

    def follow_network(self, servers: Source, attachments: Source, networks: Source, pools: Source) -> None:
        """The same of what makes tenant networks: VPCAttachments, DPUNetworks, NetworkPools."""
        self._register(lambda: network_families(servers, attachments, networks, pools, self._now()))

    def _register(self, families: Families) -> None:
        collector = FamiliesCollector(families)
        with self._lock:
            self._collectors += (collector,)
            self.registry.register(collector)

    def yield_lead(self) -> None:
        """It no longer does: counts of the fleet would be stale."""
        self._tell_who_leads(0)
        self._bulkheads = ()
        with self._lock:
            for collector in self._collectors:
                self.registry.unregister(collector)
            self._collectors = ()

    def _tell_who_leads(self, value: int) -> None:
        for group in self._groups:
            self._leads.labels(group).set(value)

    def event_dropped(self, type_: EventType) -> None:
        self._dropped_events.labels(type_).inc()
