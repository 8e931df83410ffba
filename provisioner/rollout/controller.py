"""The rollout's loop: a pool's servers as they stand, one decision for all of them, then the writes for it.

What it decides on are caches; it writes entries into Maintenances, assigned Images, and what it says of the pool.
Nothing else: the executor alone disturbs nodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import structlog

from provisioner.api import Image, Maintenance, NodePool, Server
from provisioner.api.machinery.backoff import backoff_seconds, unspread
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.machinery.errors import Conflict, NeedsHuman, Refused
from provisioner.cluster.client import Cluster
from provisioner.cluster.controller import Controller
from provisioner.cluster.events import Events
from provisioner.cluster.own_writes import BEHIND_SECONDS, OwnWrites
from provisioner.cluster.reconciler import Reconciler
from provisioner.cluster.resources import NODES, ResourceType, of
from provisioner.cluster.source import Object, look_up, spec_of
from provisioner.jobs.model.ended import Looks
from provisioner.rollout.borrowed import Borrowed, Lending, lending_of
from provisioner.rollout.closing import are_last
from provisioner.rollout.course import (
    Assignment,
    Course,
    assign,
    follow_plan,
    follows_up,
    set_course,
    stop_at_failures,
)
from provisioner.rollout.effects import RolloutEffects
from provisioner.rollout.fleet import Occupancy
from provisioner.rollout.gate import counted_before, new_since, weigh
from provisioner.rollout.informers import Changed, RolloutInformers, follow
from provisioner.rollout.members import (
    Members,
    began_at,
    is_member,
    key_of_job,
    make_fleet,
    occupancy_of,
    retried_moment,
    unknown_occupancy,
    widths_of,
)
from provisioner.rollout.plan import Plan, plan
from provisioner.rollout.pool_status import pool_status
from provisioner.rollout.requests import Asker, RequestWrite, find_acts, on_newest
from provisioner.rollout.standing import MemberFacts, RolloutTarget, judge_standing, target_of, without_records
from provisioner.rollout.workloads.failed import compile_failed_if
from provisioner.rollout.workloads.tally import tally
from provisioner.rules.amounts import resolve_amount
from provisioner.rules.filing import NoNameLeft
from provisioner.rules.nodes import read_node

RESYNC_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 5.0
"""Slurm tells of nothing by itself: so often it is looked at while servers wait for its jobs."""
COUNT_SECONDS: Final = 20.0
"""While a rollout is under way ended jobs are counted at least so often: of most of them some change tells."""
TELL_SECONDS: Final = 1.0
"""Between two writes of a pool's status."""
WRITES_AT_ONCE: Final = 64
"""After so many writes the pool is looked at anew: a job that has ended meanwhile goes before what is left."""
LONGEST_REST_SECONDS: Final = 10.0
"""After a write that met a conflict, as all before it."""
DEFAULT_STAGING: Final = "5%"

log = structlog.get_logger(__name__)


@dataclass
class _Known:
    """What is remembered of a pool between two looks, to be made anew at any time. by: what the standings were judged
    by. uses_slurm: for what runs on one of them a slurmrestd is asked. asked: servers whose request was written, as the
    caches may not show yet. rests: of a server whose request met a conflict, how often in a row, and until when it is
    not tried again."""

    by: tuple[RolloutTarget, float | None, frozenset[Borrowed]] | None = None
    standings: dict[str, MemberFacts] = field(default_factory=dict)
    runs: dict[str, Occupancy | None] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    members: Members = field(default_factory=Members)
    asked: set[str] = field(default_factory=set)
    rests: dict[str, tuple[int, float]] = field(default_factory=dict)
    uses_slurm: bool = False
    looked: float = 0.0
    told: float = 0.0


class RolloutController(Reconciler):
    """Reconciles one NodePool at a time, by name."""

    def __init__(
        self,
        cluster: Cluster,
        informers: RolloutInformers,
        workloads: Looks,
        events: Events,
        *,
        user: str,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(informers.pools, caches=informers.all, own=OwnWrites(clock))
        self._informers = informers
        self._workloads = workloads
        self._user = user
        self._clock = clock
        self._monotonic = monotonic
        self._effects = RolloutEffects(cluster, events, self.own)
        self._known: dict[str, _Known] = {}
        self.changed = Changed()
        self.by_pool = informers.servers.index(lambda body: [spec_of(body).get("nodePoolRef")])
        self._by_server = informers.maintenances.index(lambda body: [spec_of(body).get("serverRef")])
        self._borrowers = informers.pools.index(lambda body: ["any"] if spec_of(body).get("borrows") else [])

    def leave(self, key: str, body: Object | None) -> None:
        self._known.pop(key, None)

    def advance(self, key: str, body: Object) -> float | None:
        """Bring the pool's rollout on. Raises: Retryable, NeedsLane."""
        pool, now = decode_shared(NodePool, body), self._clock()
        lending = lending_of((decode_shared(NodePool, each) for each in self._borrowers.get("any")), now)
        known = self._stand(pool, lending, now)
        standings = known.standings.values()
        failed = sum(standing.state == "Failed" for standing in standings)
        course = stop_at_failures(set_course(pool, standings, now), pool, failed, now)
        found, trouble = None, lending.troubles.get(key)
        try:
            course, gate = self._weigh(pool, course, known, now)
            found = self._plan(pool, course, known, gate, now)
        except (NeedsHuman, Refused) as error:
            trouble = str(error)
        again = RESYNC_SECONDS
        if found is not None:
            course = follow_plan(course, pool, standings, found, now)
            if found.again is not None:
                again = min(again, max(0.1, (found.again - now).total_seconds()))
            if found.working and known.uses_slurm:
                again = min(again, LOOK_SECONDS)
            if course.is_under_way:
                again = min(again, COUNT_SECONDS)
        if lending.changes is not None:
            again = min(again, max(0.1, (lending.changes - now).total_seconds()))
        again = min([again, *(max(0.1, s.again - now.timestamp()) for s in standings if s.again is not None)])
        status = pool_status(pool, course, standings, found, trouble, now)
        again = min(again, self._tell(body, known, status))
        return min(again, self._write(pool, course, known, found, now))

    def _stand(self, pool: NodePool, lending: Lending, now: datetime) -> _Known:
        """The pool's servers as they stand; only those are judged anew that changed, or all by another target."""
        known = self._known.setdefault(pool.name, _Known())
        target = target_of(pool, look_up(Image, self._informers.images, pool.spec.image_ref))
        by = target, retried_moment(pool.spec.upgrade_strategy), lending.about(pool.name)
        names = self.changed.take(pool.name)
        moment = now.timestamp()
        if known.by != by or not known.standings:
            known.by, known.standings, known.runs = by, {}, {}
            homes = {pool.name, *lending.lenders_to(pool.name)}
            names |= {body["metadata"]["name"] for home in homes for body in self.by_pool.get(home)}
        names |= {n for n, s in known.standings.items() if s.again is not None and s.again <= moment}
        for name in names:
            body = self._informers.servers.get(name)
            known.runs.pop(name, None)
            if body is None or not is_member(body, pool.name, lending):
                known.standings.pop(name, None)
                continue
            standing = judge_standing(
                decode_shared(Server, body),
                read_node(self._informers.nodes.get(name)),
                tuple(decode_shared(Maintenance, each) for each in self._by_server.get(name)),
                target,
                retried=by[1],
                now=moment,
            )
            known.standings[name] = without_records(standing)
        return known

    def _plan(self, pool: NodePool, course: Course, known: _Known, gate: str | None, now: datetime) -> Plan:
        """gate: why no stage is over now, by the jobs that have ended. Raises: NeedsHuman, Refused for a strategy that
        cannot be read; Retryable, NeedsLane."""
        self._look_at_jobs(pool, known, began_at(course, now), now)
        image = look_up(Image, self._informers.images, pool.spec.image_ref)
        fleet = make_fleet(
            pool, course, known.standings, known.runs, known.widths, image, now, gate=gate, members=known.members
        )
        return plan(fleet, pool.spec.upgrade_strategy, now)

    def _look_at_jobs(self, pool: NodePool, known: _Known, began: datetime, now: datetime) -> None:
        """What runs on the servers whose turn may come, where that is not known yet; once these are the last, also on
        the updated ones. Raises: Retryable, NeedsLane."""
        if known.uses_slurm and self._monotonic() - known.looked >= LOOK_SECONDS:
            known.runs.clear()
            known.looked = self._monotonic()
        if not known.runs:
            known.widths.clear()
            known.uses_slurm = False
        left = sum(s.state == "Outdated" and s.excluded is None for s in known.standings.values())
        is_steered = pool.spec.upgrade_strategy.steer_jobs and left > 0 and are_last(left, len(known.standings))
        looked_at = {"Outdated", "Updated"} if is_steered else {"Outdated"}
        pools: dict[str, NodePool | None] = {pool.name: pool}
        for name, standing in known.standings.items():
            if standing.state not in looked_at or name in known.runs:
                continue
            is_in = standing.moves_from or pool.name
            if is_in not in pools:
                pools[is_in] = look_up(NodePool, self._informers.pools, is_in)
            there = pools[is_in]
            if there is None:
                known.runs[name] = unknown_occupancy(f"NodePool '{is_in}', in which it is, does not exist")
                continue
            known.uses_slurm = known.uses_slurm or there.spec.jobs.slurm is not None
            work = self._workloads.look(standing.server, there, fresh=False)
            known.widths.update(widths_of(work))
            # Nobody's job is ended because a server is wanted elsewhere.
            deadline = pool.spec.upgrade_strategy.deadline if standing.moves_from is None else None
            known.runs[name] = occupancy_of(work, work.free, deadline, began.timestamp(), now.timestamp())

    def _weigh(self, pool: NodePool, course: Course, known: _Known, now: datetime) -> tuple[Course, str | None]:
        """The course with jobs on the new image compared with those on the old one, and why no stage is over yet, if
        so. Raises: NeedsHuman, for an expression that cannot be read; Retryable, NeedsLane."""
        rollout = course.rollout
        if rollout is None or known.by is None or not course.is_under_way or follows_up(rollout, course.history):
            return course, None
        since = new_since(known.standings)
        before = counted_before(rollout, pool)
        here = {name for name, standing in known.standings.items() if standing.moves_from is None}
        jobs = self._workloads.ended(pool, here, before.counted)
        failed_if = compile_failed_if(pool.spec.upgrade_strategy.workloads.failed_if)
        counted = tally(before, jobs, since, failed_if, now)
        running: set[str] = set()
        if counted.new.failed:  # else it matters to nobody
            for name in since:
                work = self._workloads.look(known.standings[name].server, pool, fresh=False)
                running.update(key_of_job(job) for job in work.jobs)
        rollout, gate = weigh(rollout, pool, counted, running, now)
        return replace(course, rollout=rollout), gate

    def _tell(self, body: Object, known: _Known, status: dict[str, Any]) -> float:
        """Write the pool's status if it is another one, not too often; returns seconds until it is worth a look."""
        before = body.get("status") or {}
        if all(before.get(key) == status.get(key) for key in {*status, *_OWNED}):
            return RESYNC_SECONDS
        rest = known.told + TELL_SECONDS - self._monotonic()
        if rest > 0 and (before.get("rollout") or {}).get("passed") == (status.get("rollout") or {}).get("passed"):
            return rest
        self._effects.tell(body, status)
        known.told = self._monotonic()
        return RESYNC_SECONDS

    def _write(self, pool: NodePool, course: Course, known: _Known, found: Plan | None, now: datetime) -> float:
        """Carry out what was decided, a bounded part of it at once; returns seconds until the rest is due.

        Nobody's turn comes by a decision that did not count everybody whose turn had come before.
        """
        again, left = RESYNC_SECONDS, WRITES_AT_ONCE
        acts = self._acts(pool, known, found, now)
        known.asked = {name for name in known.asked if not self.shows_own_writes(name)}
        may_grant = not known.asked
        for act in acts:
            is_granted = act.entry is not None and act.entry.turn == "Granted"
            if not self.shows_own_writes(act.server) or (is_granted and not may_grant):
                again = min(again, BEHIND_SECONDS)
                continue
            conflicts, until = known.rests.get(act.server, (0, 0.0))
            if until > self._monotonic():
                may_grant = False
                again = min(again, until - self._monotonic())
                continue
            if left <= 0:
                return 0.0
            left -= 1
            maintenances = [decode_shared(Maintenance, each) for each in self._by_server.get(act.server)]
            try:
                self._effects.ask(on_newest(act, maintenances), maintenances)
                known.asked.add(act.server)
                known.rests.pop(act.server, None)
            except (Conflict, NoNameLeft) as error:
                if isinstance(error, NoNameLeft):
                    log.warning("a Maintenance cannot be filed", server=act.server, error=str(error))
                may_grant = False  # a turn that was to be taken back may have been used
                self.changed.add(pool.name, act.server)  # also where nothing changed in it that is looked at
                # A cache may be behind for minutes, its watch being lost.
                rest = backoff_seconds(conflicts + 1, first=BEHIND_SECONDS, cap=LONGEST_REST_SECONDS, jitter=unspread)
                known.rests[act.server] = conflicts + 1, self._monotonic() + rest
                again = min(again, rest)
        if known.by is None:
            return again
        target, images = known.by[0], {each["metadata"]["name"] for each in self._informers.images.items()}
        for name, standing in known.standings.items():
            wanted = assign(standing, course, target, images)
            status = standing.server.status
            before = Assignment(image=status.assigned_image_ref, pool=status.assigned_node_pool_ref)
            if (before, status.upgrade_failure) == (wanted, standing.failure):
                continue
            body = self._informers.servers.get(name)
            if body is None or not self.shows_own_writes(name):
                again = min(again, BEHIND_SECONDS)
                continue
            if left <= 0:
                return 0.0
            left -= 1
            try:
                self._effects.assign(body, wanted, standing.failure)
            except Conflict:
                self.changed.add(pool.name, name)
                again = min(again, BEHIND_SECONDS)
        return again

    def _acts(self, pool: NodePool, known: _Known, found: Plan | None, now: datetime) -> list[RequestWrite]:
        if found is None or known.by is None:
            return []
        strategy = pool.spec.upgrade_strategy
        most = resolve_amount(
            strategy.max_staging if strategy.max_staging is not None else DEFAULT_STAGING, len(known.standings)
        )
        asker = Asker(target=known.by[0], user=self._user)
        return find_acts(known.standings, found, asker, most, now)

    def look(self, key: str, type_: ResourceType, name: str) -> Object | None:
        sources = {
            of(Server): self._informers.servers,
            of(NodePool): self._informers.pools,
            of(Maintenance): self._informers.maintenances,
            NODES: self._informers.nodes,
        }
        return sources[type_].get(name)


_OWNED: Final = (
    *("desired", "updated", "updating", "waiting", "leftAlone", "failed", "unavailable"),
    *("released", "rollout", "history", "conditions"),
)


def build_rollout_controllers(
    cluster: Cluster,
    informers: RolloutInformers,
    workloads: Looks,
    events: Events,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    *,
    user: str,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[Controller]:
    """The rollout, following its caches. Build it anew for each leadership, run it while leading."""
    rollout = RolloutController(cluster, informers, workloads, events, user=user, clock=clock, monotonic=monotonic)
    controller = Controller("rollout", rollout.reconcile, workers=4)
    follow(informers, rollout.by_pool, rollout.changed, controller.queue.add_after)
    return [controller]
