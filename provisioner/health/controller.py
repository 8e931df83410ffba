"""The health controller's effects: reads what a decision needs, writes what was decided, then acts on it.

It is level-triggered, and decides on caches: what it then does with a Job is harmless, and the one thing that must not
happen wrongly, taking a taint off, is decided on a Server that was just read, and on a Node that has not changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from provisioner.api import Image, NodePool, Rack, Server
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.contract import NODE_FACTS_ANNOTATION
from provisioner.api.nodes.maintenance import DISTURBING_PHASES
from provisioner.api.pools.pool_settings import CHECK_NAMESPACE
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.reconciler import StatusReconciler
from provisioner.cluster.resources import NODES, ResourceType
from provisioner.cluster.source import Caches, Object, Source, conditions_of, look_up, when_changed
from provisioner.health.compose import STARTED, VERIFIED
from provisioner.health.decide import decide
from provisioner.health.decision import HealthDecision
from provisioner.health.faults.controller import build_fault_controller
from provisioner.health.job_runner import JobRunner, labelled_server
from provisioner.health.node_writer import MANAGER, NodeWriter, taints_differ
from provisioner.health.situation import CheckInputs, boot_to_judge, joined_time
from provisioner.health.skew import ClockSkew
from provisioner.rules.assigned_image import images_of_pool
from provisioner.rules.nodes import read_node
from provisioner.rules.ownership import owned_by
from provisioner.rules.pool_of_server import ordered_pool_in, ordered_pool_name

log = structlog.get_logger(__name__)

AT_ONCE_SECONDS: Final = 0.1
NEW_SECONDS: Final = 5.0
"""A server that is registered is ordered to boot within a moment: what is said of it then is not said before, too."""
UNORDERED_SECONDS: Final = 600.0
"""In a fleet that is registered at once it takes minutes: so long at most the boot controller is waited for."""
SETTLE_SECONDS: Final = 5.0
"""What is waited for changes quickly while a server boots. Taints, Jobs and results do not wait for it."""

OWNED: Final = owned_by(MANAGER, Server)


@dataclass(frozen=True, kw_only=True)
class HealthInformers(Caches):
    """The caches that the controller follows.

    leases: those of the namespace kube-node-lease. jobs and pods: those with the label provisioner.dev/check
    (`CHECK_LABEL` of job_manifest); those in a namespace that no check names are not looked at.
    """

    servers: Source
    pools: Source
    images: Source
    racks: Source
    nodes: Source
    leases: Source
    maintenances: Source
    jobs: Source
    pods: Source


class HealthController(StatusReconciler[HealthDecision]):
    """Reconciles one Server at a time, by name."""

    owned = OWNED

    def __init__(
        self,
        cluster: Cluster,
        informers: HealthInformers,
        events: Events,
        *,
        now: Callable[[], datetime],
        rng: random.Random,
        skew: ClockSkew,
        runner: JobRunner,
        settle_seconds: float = 0.0,
    ) -> None:
        super().__init__(
            cluster, informers.servers, events, caches=informers.all, now=now, rng=rng, settle_seconds=settle_seconds
        )
        self._informers = informers
        self._skew = skew
        self._runner = runner
        self._disturbing = informers.maintenances.index(lambda body: (disturbed_server(body),))
        self._nodes = NodeWriter(cluster, events, now)

    def leave(self, key: str, body: Object | None) -> None:
        self._runner.clean_up(key, None)

    def decide(self, key: str, body: Object) -> HealthDecision | float:
        if (seconds := _new_for(body, self._now())) > 0:
            return seconds
        return decide(self._situation(body, self._informers.nodes.get(key)), self._now())

    def advance(self, key: str, body: Object) -> float | None:
        """Bring status, Jobs, taints and answers up to date."""
        said = self.decide(key, body)
        if not isinstance(said, HealthDecision):
            return said
        spoken, node = self.say(key, body, said), self._informers.nodes.get(key)
        if spoken.is_gone:
            return None
        again = self.again(said)
        if node is not None and taints_differ(spoken.written or body, node):
            with self.own.written_on(key, NODES, node):
                tainted = self._nodes.taint(key, node, just_written=spoken.written)
            if tainted is not None:
                self.own.note(key, NODES, tainted)
        is_put_off = spoken.rest_seconds > 0
        if not is_put_off and said.start is not None and not self._runner.start(said.start, key):
            again = AT_ONCE_SECONDS  # refused: that is a result, too
        if said.answers:
            self._nodes.answer(key, said.answers)
        if is_put_off:
            return min(spoken.rest_seconds, again)
        self._runner.clean_up(key, said.current)  # last: nothing waits for what cannot be deleted
        return again

    def is_words(self, body: Object, said: HealthDecision) -> bool:
        """Whether only what is waited for is new: no check came out, none is to be started, nothing is to be told but
        that a round began, which is told of one that does not come out at once."""
        tells = said.start is not None or any(each.reason != STARTED for each in said.events)
        return not tells and OWNED.keeps(VERIFIED, body, said.status)

    def tell(self, body: Object, said: HealthDecision) -> None:
        super().tell(body, said)
        node = self._informers.nodes.get(body["metadata"]["name"])
        for event in said.events:
            log.info("verification went on", server=body["metadata"]["name"], reason=event.reason)
            # What went wrong is told on the Node, too: there the admission is told.
            if node is not None and event.type == "Warning":
                self._events.record(node, event.type, event.reason, event.message)

    def look(self, key: str, type_: ResourceType, name: str) -> Object | None:
        return (self._informers.nodes if type_ == NODES else self._informers.servers).get(name)

    def _situation(self, body: Mapping[str, Any], node: Mapping[str, Any] | None) -> CheckInputs:
        server, view = decode_shared(Server, body), read_node(node)
        pool = look_up(NodePool, self._informers.pools, ordered_pool_name(server))
        order, boot, verification = server.status.order, boot_to_judge(server, view), server.status.verification
        situation = CheckInputs(
            server=server,
            pool=pool,
            image=look_up(Image, self._informers.images, order.image_ref if order is not None else None),
            node=view,
            clock_skew_seconds=self._skew.of(server.name, since=joined_time(server)),
            has_ntp_servers=_has_ntp_servers(server, look_up(Rack, self._informers.racks, server.spec.rack_ref)),
            maintenance=next((each["metadata"]["name"] for each in self._disturbing.get(server.name)), None),
        )
        # Jobs of the round under way: a round that is over, or has just begun, has none that matter.
        if verification is None or verification.boot_id != boot or verification.finished_time is not None:
            return situation
        settled = {each.name for each in verification.checks if each.result == "Passed"}
        jobs = {
            check.name: self._runner.state(check, server.name, verification.boot_id, verification.attempt)
            for check in situation.own_checks
            if check.name not in settled
        }
        return replace(situation, jobs=jobs)


def build_health_controllers(
    cluster: Cluster,
    informers: HealthInformers,
    recorder: Events,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[Controller]:
    """The controllers of checks and of faults, following their caches. Build them anew for each leadership, run them
    while leading."""
    skew, runner = ClockSkew(clock), build_job_runner(cluster, informers)
    health = HealthController(
        cluster,
        informers,
        recorder,
        now=clock,
        rng=random.SystemRandom(),
        skew=skew,
        runner=runner,
        settle_seconds=SETTLE_SECONDS,
    )
    controller = Controller("health", health.reconcile, workers=4)
    follow(informers, skew, controller.queue.add)
    faults = build_fault_controller(cluster, informers.servers, informers.nodes, recorder, now=clock)
    return [controller, faults]


def build_job_runner(cluster: Cluster, informers: HealthInformers) -> JobRunner:
    return JobRunner(
        cluster,
        jobs=informers.jobs.index(labelled_server),
        pods=informers.pods.index(labelled_server),
        is_of_checks=namespaces_of_checks(informers.pools),
    )


def namespaces_of_checks(pools: Source) -> Callable[[str], bool]:
    """Whether a namespace is one in which checks run: the usual one, and those that a pool's checks name."""
    named = pools.index(_check_namespaces)
    return lambda namespace: namespace == CHECK_NAMESPACE or bool(named.get(namespace))


def follow(informers: HealthInformers, skew: ClockSkew, add: Callable[[str], None]) -> None:
    """Queue the servers that a change concerns. Leases are only measured."""
    servers_by_pool = informers.servers.index(lambda body: [ordered_pool_in(body)])

    def add_members(pool: str) -> None:
        for server in servers_by_pool.get(pool):
            add(server["metadata"]["name"])

    def owned_changed(owner_of: Callable[[Mapping[str, Any]], str | None]) -> Any:
        def changed(key: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> None:
            for owner in {owner_of(each) for each in (old, new) if each is not None} - {None}:
                add(str(owner))

        return changed

    is_of_checks = namespaces_of_checks(informers.pools)

    def server_of_check(body: Mapping[str, Any]) -> str | None:
        return labelled_server(body)[0] if is_of_checks(body["metadata"]["namespace"]) else None

    informers.leases.subscribe(lambda key, old, new: skew.saw(key.rpartition("/")[2], old, new))
    informers.maintenances.subscribe(owned_changed(lambda body: body["spec"].get("serverRef")))
    for source in (informers.jobs, informers.pods):
        source.subscribe(owned_changed(server_of_check))
    informers.pools.subscribe(when_changed(_verification, add_members))
    informers.nodes.subscribe(when_changed(_of_interest, add))
    informers.servers.subscribe(lambda name, old, new: add(name))


def _new_for(server: Mapping[str, Any], now: datetime) -> float:
    """Seconds for which nothing is said of the life of a server that was registered a moment ago; 0 once that is over.

    An accepted one is ordered to boot, which says it; or the boot controller says in its condition Ready why not.
    """
    status, created = server.get("status") or {}, server["metadata"].get("creationTimestamp")
    if status.get("order") is not None or status.get("lifecycle") is not None or created is None:
        return 0.0
    is_judged = conditions_of(server, "Ready")
    is_ordered_next = server["spec"].get("acceptance") == "Accepted" and not is_judged
    age = (now - parse_time(created)).total_seconds()
    return max(0.0, (UNORDERED_SECONDS if is_ordered_next else NEW_SECONDS) - age) if age >= 0 else 0.0


def _has_ntp_servers(server: Server, rack: Rack | None) -> bool:
    """Whether the server's subnet names any; without a rack it cannot be told, and is expected."""
    if rack is None:
        return True
    name = server.status.subnet_name
    return any(subnet.ntp_servers for subnet in rack.spec.subnets if name in (None, subnet.name))


def disturbed_server(maintenance: Mapping[str, Any]) -> str | None:
    """The server that a Maintenance disturbs now."""
    phase = (maintenance.get("status") or {}).get("phase")
    return str(maintenance["spec"]["serverRef"]) if phase in DISTURBING_PHASES else None


def _of_interest(node: dict[str, Any] | None) -> Any:
    """Everything of a Node that is looked at; not its heartbeats."""
    view = read_node(node)
    if view is None:
        return None
    annotations = view.annotations.get(NODE_FACTS_ANNOTATION), view.prepared_order
    return view.uid, view.boot_id, view.runtime_version, view.unschedulable, view.taints, view.conditions, annotations


def _verification(pool: dict[str, Any] | None) -> Any:
    spec = (pool or {}).get("spec") or {}
    return pool is None, spec.get("verification"), spec.get("upgradeStrategy", {}).get("canary"), images_of_pool(pool)


def _check_namespaces(pool: Mapping[str, Any]) -> set[str]:
    spec = pool["spec"]
    settings = (spec.get("verification"), (spec.get("upgradeStrategy") or {}).get("canary"))
    checks = (check for each in settings for check in (each or {}).get("checks") or ())
    return {check.get("namespace", CHECK_NAMESPACE) for check in checks}
