"""A small fleet in memory: servers, jobs, people, the controllers beside the executor, and one or two executors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.codec import encode, to_json
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import HOLD_TAINT, MAINTENANCE_TAINT, VERIFICATION_TAINT
from provisioner.api.nodes.maintenance import FINAL_PHASES
from provisioner.api.pools.pool_settings import JobSettings, MaintenanceSettings, SlurmJobs
from provisioner.api.pools.upgrade_strategy import UpgradeStrategy
from provisioner.api.servers.server import BootOrder, JoinStatus, PowerStatus
from provisioner.cluster.resources import NODES, ResourceType, of
from provisioner.join.nodes.node_object import PREPARED_ORDER_ANNOTATION, SERVER_UID_ANNOTATION
from tests.api.objects import IMAGE_JUDGED
from tests.boot.objects import image, pool, rack, server
from tests.cluster.fake_cluster import FakeCluster
from tests.maintenance.chaos import invariants
from tests.maintenance.chaos.accounts import Accounts
from tests.maintenance.chaos.client import Meter, Reachable
from tests.maintenance.chaos.fake_host import FakeHost
from tests.maintenance.chaos.fake_machine import Boot, FakeBmc, FakeBmcPool, FakeMachine
from tests.maintenance.chaos.fake_time import FakeClock
from tests.maintenance.chaos.fake_workloads import FakeJob, FakeWorkloads
from tests.maintenance.chaos.history import History
from tests.maintenance.chaos.neighbours import Neighbours
from tests.maintenance.chaos.replica import Replica
from tests.maintenance.chaos.story import SimulatedCrash, Story

NOON: Final = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)
OURS: Final = (MAINTENANCE_TAINT, VERIFICATION_TAINT, HOLD_TAINT)
OLD, NEW, STALE = "image-old", "image-new", "image-stale"


def renamed(server: str) -> str:
    """What a Server is called once somebody has registered its machine under another name."""
    return f"{server}-new"


NO_SCHEDULE: Final = ("NoSchedule", "NoExecute")
RESTART_SECONDS: Final = 20
LEASE_SECONDS: Final = 15
Object = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What a world begins with. `accounts` None: a FakeCluster. racks: on how many the servers are spread. reserves:
    whether its Slurm makes reservations.

    rollout: the strategy by which the pool's servers move to another image; None: no rollout is there, and the test
    assigns images."""

    servers: int = 1
    racks: int = 1
    budget: int = 1
    settings: dict[str, Any] = field(default_factory=dict)
    slurm: bool = True
    reserves: bool = True
    prefix: str = "s"
    accounts: Accounts | None = None
    start: datetime = NOON
    rollout: UpgradeStrategy | None = None


class World:
    """Everything together. Nothing happens but by its methods; `run` lets time pass."""

    def __init__(self, fleet: Fleet | None = None, title: str = "") -> None:
        self.fleet = fleet or Fleet()
        self.clock = FakeClock(self.fleet.start)
        self.story = Story(self.clock)
        self.story.title = title
        self.history = History(self.clock)
        self.accounts = self.fleet.accounts or Accounts.of_fake(FakeCluster(self.clock))
        self.cluster = self.accounts.admin
        self._listed: dict[ResourceType, tuple[int, dict[str, Object]]] = {}
        self.names = [f"{self.fleet.prefix}{n + 1}" for n in range(self.fleet.servers)]
        self.pool_name = f"{self.fleet.prefix}-pool"
        self.workloads = FakeWorkloads(self.clock, self.story, slurm=self.fleet.slurm, reserves=self.fleet.reserves)
        self.workloads.judge_interruption = lambda job, why: invariants.judge_interruption(self, job, why)
        self.meter = Meter(self.story, self.check)
        self.machines: dict[str, FakeMachine] = {}
        self.hosts: dict[str, FakeHost] = {}
        self.cordoned: set[str] = set()
        self.seen_successes: set[str] = set()
        self.foreign_drains: dict[str, str] = {}
        self.boot_watches: list[Callable[[FakeMachine, Boot], None]] = []
        self.replicas: list[Replica] = []
        self.starts = 0
        self.decisions = 0
        """How often a person decided that what was done for a rollout may be done once more."""
        self.restart_at: datetime | None = None
        self.freeze_next = 0.0
        self.is_troubled = False
        """Whether more goes wrong in this history than that the executor is killed."""
        self.uses_turns = False
        """Whether somebody closes servers before their turn, for which there is no budget."""
        self.api_back_at: datetime | None = None
        self.most_skew = timedelta()
        """How far the clock of any leader was ever off."""
        self.checks: list[Callable[[], None]] = [lambda: invariants.check_always(self)]
        """What must hold after every effect, and whenever time has passed."""
        self._plans: list[tuple[datetime, Callable[[], None]]] = []
        self._seen_changes = -1
        self._make_objects()
        bmcs = {name: FakeBmc(self.machines[name], self.hosts[name].ordered_boot) for name in self.names}
        self.neighbours = Neighbours(self.accounts.service, self.look, FakeBmcPool(bmcs), self.clock, self.story)

    # Making it

    def _make_objects(self) -> None:
        settings = {"max_unavailable": self.fleet.budget, "kexec_models": ("*",), **self.fleet.settings}
        maintenance = MaintenanceSettings(**settings)
        self.images = {name: self._image_name(name) for name in (OLD, NEW, STALE)}
        for name in self.images:
            self.publish(name)
        for name in sorted({self._rack_name(number) for number in range(self.fleet.servers)}):
            self._put({**encode(rack()), "metadata": {"name": name}}, "kubectl")
        slurm = SlurmJobs(url="http://slurm.invalid:6820", credentials_name="slurm") if self.fleet.slurm else None
        pool_body = pool(
            self.pool_name,
            image_ref=self.images[OLD],
            maintenance=maintenance,
            jobs=JobSettings(slurm=slurm),
            upgrade_strategy=self.fleet.rollout or UpgradeStrategy(),
        )
        self._put(encode(pool_body), "kubectl")
        self.history.pool_images.append((self.clock.now, self.images[OLD]))
        for number, name in enumerate(self.names):
            self.machines[name] = FakeMachine(
                name, self.clock, self.story, self._machine_went_down, self.images[OLD], self.images[STALE]
            )
            self.machines[name].on_boot = self._machine_boots
            self.hosts[name] = FakeHost(self.machines[name], self.accounts, self.pool_name)
            self._make_server(name, number)

    def _image_name(self, name: str) -> str:
        return f"{self.fleet.prefix}-{name}"

    def _rack_name(self, number: int) -> str:
        """Of the rack of server `number`: neighbours share one."""
        place = number * self.fleet.racks // max(self.fleet.servers, 1)
        return f"{self.fleet.prefix}-rack{place + 1 if place else ''}"

    def _put(self, body: Object, manager: str) -> None:
        status = body.pop("status", None)
        self.cluster.apply(body, manager=manager)
        if status:
            whole = {key: body[key] for key in ("apiVersion", "kind", "metadata")}
            self.cluster.apply({**whole, "status": status}, manager=manager, subresource="status")

    def _make_server(self, name: str, number: int) -> None:
        body = encode(
            server(
                name,
                rack_ref=self._rack_name(number),
                node_pool_ref=self.pool_name,
                boot_mac_address=f"52:54:00:00:00:{number + 1:02x}",
            )
        )
        body["metadata"].pop("uid")
        self._put(body, "kubectl")
        uid = self.cluster.get(of(Server), name)["metadata"]["uid"]
        order_id = f"first-{name}"
        annotations = {SERVER_UID_ANNOTATION: uid, PREPARED_ORDER_ANNOTATION: order_id}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "annotations": annotations}}
        made = self.cluster.create(NODES, node)
        self.cluster.patch(NODES, name, {"spec": {"taints": None}})
        moment = rfc3339(self.clock.now - timedelta(days=1))
        order = BootOrder(id=order_id, reason="FirstBoot", ordered_time=moment, attempt=1, image_ref=self.images[OLD])
        join = JoinStatus(order_id=order_id, boot_id=self.machines[name].boot_id, fetched_time=moment)
        power = PowerStatus(order_id=order_id, order_time=moment, state="On", observed_time=moment)
        for manager, status in (
            ("provisioner-boot-controller", {"order": to_json(order), "readyTime": moment}),
            ("provisioner-join", {"join": to_json(join)}),
            ("provisioner-rollout", {"assignedImageRef": self.images[OLD]}),
            ("provisioner-join-controller", {"nodeUID": made["metadata"]["uid"]}),
            ("provisioner-power", {"power": to_json(power)}),
        ):
            self.cluster.apply_status(Server, name, status, manager=manager)
        self.hosts[name].start()

    # Looking at it

    def look(self, type_: ResourceType) -> Callable[[], dict[str, Object]]:
        """What a cache would show of a kind now, by key: this world's objects only."""
        if isinstance(self.cluster, FakeCluster):
            found = self.cluster.stored(type_)
            return lambda: found
        return lambda: self._list(type_)

    def _list(self, type_: ResourceType) -> dict[str, Object]:
        """Listed anew only after somebody here wrote such a one: a real API server takes milliseconds for each list."""
        assert self.accounts.count is not None
        writes = self.accounts.count.touching(type_)
        known = self._listed.get(type_)
        if known is None or known[0] != writes:
            known = self._listed[type_] = (writes, self._mine(type_))
        return known[1]

    def _mine(self, type_: ResourceType) -> dict[str, Object]:
        """One by one where the names are known: other tests have left hundreds in the same API server."""
        servers = [each for name in self.names for each in (name, renamed(name))]
        names = {
            NODES: servers,
            of(Server): servers,
            of(NodePool): [self.pool_name],
            of(Image): [*self.images.values()],
        }
        if type_ in names:
            found = [item for name in names[type_] if (item := self.cluster.find(type_, name)) is not None]
        else:
            found = [i for i in self.cluster.list(type_).items if i["metadata"]["name"].startswith(self.fleet.prefix)]
        return {item["metadata"]["name"]: item for item in found}

    def nodes(self) -> dict[str, Object]:
        return self.look(NODES)()

    def maintenances(self) -> list[Object]:
        return list(self.look(of(Maintenance))().values())

    def is_schedulable(self, name: str) -> bool:
        """Whether a scheduler would place a job there now."""
        node = self.nodes().get(name)
        if node is None or (node.get("spec") or {}).get("unschedulable"):
            return False
        if any(taint["effect"] in NO_SCHEDULE for taint in (node.get("spec") or {}).get("taints") or ()):
            return False
        return self.machines[name].state == "Running" and self.machines[name].silent_since() is None

    # What happens to it

    def start_job(self, job: FakeJob) -> bool:
        """Start it if the scheduler of its kind would; whether it did."""
        slurm = job.kind == "SlurmJob"
        for name in job.servers:
            if self.machines[name].state != "Running" or self.machines[name].silent_since() is not None:
                return False
            ends = job.ends_at if job.has_limit else None
            if slurm and not (self.workloads.slurm and self.workloads.takes(name, ends)):
                return False
            if not slurm and not self.is_schedulable(name):
                return False
        self.workloads.start(job)
        return True

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        self._plans.append((self.clock.in_seconds(seconds), act))

    def _machine_went_down(self, name: str, why: str | None) -> None:
        self.workloads.machine_went_down(name, why)

    def _machine_boots(self, machine: FakeMachine, boot: Boot) -> None:
        for watch in self.boot_watches:
            watch(machine, boot)

    def start_controller(self) -> Replica:
        """A new process that leads."""
        self.starts += 1
        who = f"executor-{self.starts}"
        replica = Replica(
            who,
            Reachable(self.accounts.service("maintenance"), self.is_api_away),
            self.look,
            Reachable(self.workloads, self.is_api_away, spare=("slurm", "look", "pods")),
            self.meter,
            self.clock,
            self.story,
            seed=self.starts,
            rollout=(
                Reachable(self.accounts.service("rollout"), self.is_api_away)
                if self.fleet.rollout is not None
                else None
            ),
        )
        self.replicas.append(replica)
        if self.freeze_next:
            replica.freeze(self.freeze_next)
            self.freeze_next = 0.0
        return replica

    @property
    def has_plans(self) -> bool:
        return bool(self._plans)

    def crash(self, replica: Replica) -> None:
        """Its process is gone; another one takes over when the lease has run out."""
        self.replicas.remove(replica)
        self.story.tell(replica.who, "CRASHES")
        if self.restart_at is None and not self.replicas:
            self.restart_at = self.clock.in_seconds(RESTART_SECONDS)

    def is_api_away(self) -> bool:
        return self.api_back_at is not None and self.clock.now < self.api_back_at

    def api_goes(self, seconds: float) -> None:
        """Nobody reaches the API server for so long; who leads loses its lease meanwhile, and ends."""
        self.api_back_at = self.clock.in_seconds(seconds)
        self.story.tell("api", f"is away for {seconds:.0f} s")
        for replica in self.replicas:
            replica.freeze(seconds)
        self.later(LEASE_SECONDS, self._lose_leases)

    def _lose_leases(self) -> None:
        for replica in list(self.replicas) if self.is_api_away() else ():
            self.crash(replica)

    def clock_jumps(self, replica: Replica, seconds: float) -> None:
        """The clock of its host is set forth, or back."""
        replica.skew = timedelta(seconds=seconds)
        self.most_skew = max(self.most_skew, abs(replica.skew))
        self.story.tell(replica.who, f"its clock is off by {seconds:.0f} s")

    def check(self) -> None:
        for check in self.checks:
            check()

    # Letting time pass

    def settle(self) -> None:
        """Let everybody do what is due now, until nobody has anything to do."""
        for _ in range(200):
            changes = self._count_changes()
            changed = changes != self._seen_changes
            self._seen_changes = changes
            self.workloads.pass_time()
            if not self.is_api_away():
                for host in self.hosts.values():
                    host.react()
                self.neighbours.react(self.names, changed=changed)
            worked = self._run_replicas()
            self.check()
            if not worked and self._count_changes() == self._seen_changes:
                return
        self.story.must(False, "the world does not come to rest: somebody writes again and again")

    def run(self, seconds: float, *, until: Callable[[], bool] = lambda: False) -> None:
        """Let so many seconds pass, or fewer once `until` holds; raises InvariantBroken when something is."""
        end = self.clock.in_seconds(seconds)
        while True:
            self._do_what_is_planned()
            self.settle()
            self.story.judge()
            if self.clock.now >= end or until():
                return
            self.clock.go_to(min(self._next_moment() or end, end))

    def _do_what_is_planned(self) -> None:
        due = [plan for plan in self._plans if plan[0] <= self.clock.now]
        self._plans = [plan for plan in self._plans if plan not in due]
        for _, act in due:
            act()
        if self.restart_at is not None and self.restart_at <= self.clock.now and not self.is_api_away():
            self.restart_at = None
            self.start_controller()

    def _run_replicas(self) -> bool:
        worked = False
        for replica in list(self.replicas):
            if replica not in self.replicas:
                continue
            try:
                worked = replica.work() or worked
            except SimulatedCrash:
                self.crash(replica)
                worked = True
        return worked

    def _count_changes(self) -> int:
        count = self.accounts.count
        return count.writes if count is not None else len(self.cluster.changes)

    def _next_moment(self) -> datetime | None:
        moments = [plan[0] for plan in self._plans]
        known = (self.restart_at, self.api_back_at, self.workloads.next_moment())
        moments += [moment for moment in known if moment is not None]
        for part in (*self.hosts.values(), *self.replicas, self.neighbours):
            moment = part.next_moment()
            if moment is not None:
                moments.append(moment)
        later = [moment for moment in moments if moment > self.clock.now]
        return min(later, default=None)

    def is_over(self) -> bool:
        """Whether every Maintenance has ended, and there is at least one, and somebody leads."""
        phases = [(m.get("status") or {}).get("phase") for m in self.maintenances()]
        return bool(phases) and bool(self.replicas) and all(phase in FINAL_PHASES for phase in phases)

    def image_is_there(self, name: str, there: bool) -> None:
        """Whether the boot hosts have it."""
        condition = {
            "type": "Available",
            "status": "True" if there else "False",
            "reason": "Published" if there else "Missing",
            "message": "",
            "lastTransitionTime": rfc3339(self.clock.now),
        }
        self.cluster.apply_status(
            Image, self.images[name], {"conditions": [condition, IMAGE_JUDGED]}, manager="provisioner-image"
        )
        self.history.images_gone.append((self.clock.now, self.images[name], not there))
        self.story.tell("images", f"{name} is {'there' if there else 'gone'}")

    def image_is_deleted(self, name: str) -> None:
        """`kubectl delete image`; `publish` brings it back as it was."""
        self.cluster.delete(of(Image), self.images[name])
        self.history.images_gone.append((self.clock.now, self.images[name], True))
        self.story.tell("admin", f"deletes Image {name}")

    def publish(self, name: str) -> None:
        number = list(self.images).index(name)
        self._put(encode(image(self.images[name], digest=f"sha256:{number + 1:064x}")), "provisioner-image")
        self.history.images_gone.append((self.clock.now, self.images[name], False))
        self.story.tell("images", f"{name} is published")

    def pool_image(self, name: str) -> None:
        """The administrator points the pool at another image."""
        self.cluster.patch(of(NodePool), self.pool_name, {"spec": {"imageRef": self.images[name]}}, manager="kubectl")
        self.history.pool_images.append((self.clock.now, self.images[name]))
        for member in self.look(of(Server))() if self.fleet.rollout is None else ():
            # What a rollout does that holds nothing back.
            assigned = {"assignedImageRef": self.images[name]}
            self.accounts.service("rollout").apply_status(Server, member, assigned, manager="provisioner-rollout")
        self.story.tell("admin", f"the pool wants {name}")
