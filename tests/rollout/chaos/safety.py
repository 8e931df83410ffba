"""What must hold of a pool at every moment of a rollout, and whenever one of its servers boots.

It is judged by what machines really did and by what people and the API server hold, apart from anything that the
rollout says about itself.

Two leaders that overlap see the same objects, and what they write about one server conflicts; but each may let another
server begin at the same moment. So each keeps the limits by what it sees, and so many leaders as there were at once may
exceed a limit so many times over. What is never exceeded, however many lead, is the executor's budget
(tests/maintenance/chaos/invariants.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from provisioner.api import Maintenance, NodePool, Server
from provisioner.api.machinery.codec import decode_shared
from provisioner.api.machinery.meta import parse_time
from provisioner.api.nodes.maintenance import DISTURBING_PHASES, FINAL_PHASES
from provisioner.api.pools.upgrade_strategy import UpgradeStrategy
from provisioner.cluster.resources import of
from provisioner.rollout.standing import OUT_SECONDS, REQUESTOR
from provisioner.rules.amounts import resolve_amount
from provisioner.rules.requests import entry_of
from tests.maintenance.chaos.fake_machine import Boot, FakeMachine
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.world import OLD, World
from tests.rollout.chaos.administrators import is_left_alone, runs_by_hand, wanted_image

SLACK: Final = timedelta(seconds=3)
"""Times in the API are whole seconds, and what happens is seen a moment later."""
ENDING: Final = timedelta(seconds=120)
"""So long after a Maintenance has ended its boot order may not be replaced yet."""


@dataclass
class Passage:
    """How far an image has come in this pool, really. passed: stages that were over; ever_failed: servers that at some
    moment had failed with it. begun: the Maintenances in which the rollout booted it, by server, since people last
    decided anything."""

    passed: int = 0
    ever_failed: set[str] = field(default_factory=set)
    begun: dict[tuple[str, int], set[str]] = field(default_factory=dict)


class Safety:
    """Watches a world from its begin to its end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._passages: dict[str, Passage] = {}
        self._fit: dict[str, tuple[str, datetime, str]] = {}
        """Of each machine in use: its boot, since when, and its image, as it was when it was looked at last."""
        self._out: dict[str, datetime] = {}
        self._granted: set[str] = set()
        self._left_alone: dict[str, datetime] = {}
        self._leaders = 1
        self._completed: str | None = None
        self._strategies = [(world.clock.now, self.strategy)]
        """Since when each was in force. What was decided in the moment of a change is carried out by the one before."""
        world.checks.append(self.check)
        world.boot_watches.append(self.judge_boot)
        judge = world.workloads.judge_interruption
        world.workloads.judge_interruption = lambda job, why: (judge(job, why), self._judge_warning(job))[0]

    # What is looked at

    @property
    def strategy(self) -> UpgradeStrategy:
        return self._pool.spec.upgrade_strategy

    def _note_strategy(self) -> None:
        if self.strategy != self._strategies[-1][1]:
            self._strategies = [self._strategies[-1], (self._world.clock.now, self.strategy)]

    def _in_force(self) -> list[UpgradeStrategy]:
        """The strategy; in the very moment of a change, with the one before it."""
        since, strategy = self._strategies[-1]
        before = [former for _, former in self._strategies[:-1]] if since == self._world.clock.now else []
        return [strategy, *before]

    @property
    def _pool(self) -> NodePool:
        return decode_shared(NodePool, self._world.look(of(NodePool))()[self._world.pool_name])

    def _servers(self) -> dict[str, Server]:
        found = self._world.look(of(Server))()
        return {name: decode_shared(Server, found[name]) for name in self._world.names if name in found}

    def _maintenances(self) -> list[Maintenance]:
        return [decode_shared(Maintenance, body) for body in self._world.maintenances()]

    def passage(self, image: str) -> Passage:
        first = image == self._world.images[OLD]
        known = Passage(passed=len(self._stages())) if first else Passage()
        return self._passages.setdefault(image, known)

    def _stages(self) -> list[tuple[int, int]]:
        """How many servers may have the image in each stage, and how long they are in use before more follow."""
        strategy, size = self.strategy, len(self._world.names)
        waves = [(math.ceil(size * wave.share / 100), wave.soak_seconds) for wave in strategy.waves]
        return [(strategy.canary.count, strategy.canary.soak_seconds), *waves]

    # At every moment

    def check(self) -> None:
        world = self._world
        self._note_strategy()
        self._leaders = max(self._leaders, len(world.replicas))
        if world.is_api_away():
            return
        servers, maintenances = self._servers(), self._maintenances()
        image = wanted_image(world)
        passage = self.passage(image)
        self._pass_stages(image, passage)  # by what was in use until this very moment
        self._look_at_machines(servers)
        passage.ever_failed |= set(self._failed(image, servers, maintenances))
        self._pass_stages(image, passage)
        on_way = self._on_way(image, maintenances)
        stages = self._stages()
        limit = stages[passage.passed][0] if passage.passed < len(stages) else len(world.names)
        most = limit * self._leaders + len(passage.ever_failed)
        world.story.must(
            len(on_way - passage.ever_failed) <= most,
            f"{sorted(on_way)} have {image} or are on their way to it, in a stage for {limit}",
        )
        self._judge_released(image, passage)
        self._judge_complete(image, servers, maintenances)
        self._judge_grants(image, servers, maintenances)

    def _look_at_machines(self, servers: dict[str, Server]) -> None:
        """Since when each machine is in use, or out of it."""
        world, now = self._world, self._world.clock.now
        for name, machine in world.machines.items():
            if not machine.is_fit():
                self._fit.pop(name, None)
                self._out.setdefault(name, now)
            else:
                self._out.pop(name, None)
                if name not in self._fit or self._fit[name][0] != machine.boot_id:
                    self._fit[name] = machine.boot_id, now, machine.running_image
            if is_left_alone(world, name):
                self._left_alone.setdefault(name, now)
            else:
                self._left_alone.pop(name, None)

    def _pass_stages(self, image: str, passage: Passage) -> None:
        """Note the stages that are over by what machines did."""
        world, now = self._world, self._world.clock.now
        stages = self._stages()
        runs = {name for name, (_, _, running) in self._fit.items() if running == image}
        able = runs | self._on_way(image, self._maintenances()) - passage.ever_failed
        able |= {name for name in self._fit if name not in self._left_alone and name not in passage.ever_failed}
        while passage.passed < len(stages):
            count, soak = stages[passage.passed]
            soaked = timedelta(seconds=soak) - SLACK - world.most_skew
            over = [name for name in runs if now - self._fit[name][1] >= soaked]
            if len(over) < min(count, len(able)) or (count and not over):
                return
            passage.passed += 1

    def _on_way(self, image: str, maintenances: list[Maintenance]) -> set[str]:
        """Servers that the rollout booted into the image, or lets boot it now."""
        found = {
            m.spec.server_ref
            for m in maintenances
            if m.status.phase not in FINAL_PHASES
            and (entry := entry_of(m, REQUESTOR)) is not None
            and entry.has_turn
            and entry.image_ref == image
        }
        ours = {attempt for m in maintenances if entry_of(m, REQUESTOR) is not None for attempt in _attempts(m)}
        booted = {
            name
            for name, machine in self._world.machines.items()
            if machine.running_image == image and machine.log[-1].attempt in ours
        }
        return found | booted

    def _failed(self, image: str, servers: dict[str, Server], maintenances: list[Maintenance]) -> Iterator[str]:
        now = self._world.clock.now
        for m in maintenances:
            if m.status.phase == "Failed" and m.status.reboot is not None and m.status.reboot.image_ref == image:
                yield m.spec.server_ref
        for name, server in servers.items():
            failure = server.status.upgrade_failure
            if failure is not None and failure.image_ref == image:
                yield name
            out = self._out.get(name)
            runs = self._world.machines[name].running_image == image
            if out is not None and runs and now - out >= timedelta(seconds=OUT_SECONDS) - SLACK:
                yield name

    # What the rollout decided

    def _judge_released(self, image: str, passage: Passage) -> None:
        released = self._pool.status.released
        fresh = released is not None and released.image_ref == image and passage.passed == 0
        self._world.story.must(not fresh, f"{image} is released, though it has not passed the canary")

    def _judge_complete(self, image: str, servers: dict[str, Server], maintenances: list[Maintenance]) -> None:
        """When it is called complete, nobody in use is left behind whom no person wanted so. Who is out of use then,
        also for a Maintenance of others, follows when it is back."""
        rollout = self._pool.status.rollout
        if rollout is None or rollout.image_ref != image or rollout.completed_time in (None, self._completed):
            return
        self._completed = rollout.completed_time
        now = self._world.clock.now
        disturbed = {m.spec.server_ref for m in maintenances if m.status.phase in DISTURBING_PHASES}
        left = [
            name
            for name, (_, since, _) in self._fit.items()
            if now - since > SLACK and name in servers and name not in disturbed | self._left_alone.keys()
            if self._world.machines[name].running_image != image and self._world.nodes().get(name) is not None
            if not runs_by_hand(self._world, name)
        ]
        self._world.story.must(not left, f"the rollout of {image} is called complete, and {left} run another image")

    def _image_of_a_moment_ago(self) -> str | None:
        """The image that was wanted until this very moment, by which what is written now may have been decided."""
        changes = self._world.history.pool_images
        is_of_now = len(changes) > 1 and changes[-1][0] == self._world.clock.now
        return changes[-2][1] if is_of_now else None

    def _judge_grants(self, image: str, servers: dict[str, Server], maintenances: list[Maintenance]) -> None:
        """Each time that another server's turn has come: the limits held, with it."""
        turns = {
            m.metadata.uid or m.name: m
            for m in maintenances
            if m.status.phase not in FINAL_PHASES and (entry := entry_of(m, REQUESTOR)) is not None and entry.has_turn
        }
        fresh = [m for uid, m in turns.items() if uid not in self._granted]
        self._granted = set(turns)
        if not fresh:
            return
        names, must = [m.spec.server_ref for m in fresh], self._world.story.must
        is_stale = any(r.frozen_until is not None for r in self._world.replicas)
        for m in fresh:
            since = self._left_alone.get(m.spec.server_ref)
            known = since is not None and self._world.clock.now - since > SLACK
            must(is_stale or not known, f"{m.spec.server_ref} is left alone by a person, and was let begin")
            entry = entry_of(m, REQUESTOR)
            wanted = entry is not None and entry.image_ref in (image, self._image_of_a_moment_ago())
            must(wanted, f"{m.name} is let begin with {entry}, not {image}")
        ours = {m.spec.server_ref for m in turns.values()} | set(self._failed_now(image, servers))
        size = len(servers)
        parallel = max(resolve_amount(s.max_parallel or "10%", size) for s in self._in_force()) * self._leaders
        must(len(ours) <= parallel, f"{names} begin, with which {sorted(ours)} are on their way or failed: {parallel}")
        if is_stale:
            return
        disturbed = {m.spec.server_ref for m in maintenances if m.status.phase in DISTURBING_PHASES}
        out = ours | disturbed | {name for name, server in servers.items() if not _is_in_use(server)}
        unavailable = max(resolve_amount(s.max_unavailable or "25%", size) for s in self._in_force()) * self._leaders
        must(len(out) <= unavailable, f"{names} begin, with which {sorted(out)} are out of use: {unavailable}")
        for cap in self.strategy.domains:
            domains = {name: server.spec.rack_ref for name, server in servers.items()}
            for domain in {domains[name] for name in names if name in domains}:
                members = [name for name in servers if domains[name] == domain]
                most = resolve_amount(cap.max_unavailable, len(members)) * self._leaders
                there = sorted(out.intersection(members))
                must(len(there) <= most, f"{names} begin, with which {there} of {domain} are out of use: {most}")

    def _failed_now(self, image: str, servers: dict[str, Server]) -> Iterator[str]:
        retried = self.strategy.retried_time
        for name, server in servers.items():
            failure = server.status.upgrade_failure
            if failure is None or failure.image_ref != image:
                continue
            if retried is None or parse_time(failure.time) > parse_time(retried):
                yield name

    # When a machine boots

    def judge_boot(self, machine: FakeMachine, boot: Boot) -> None:
        """It boots what its Maintenance says; otherwise what is assigned to it, or else released."""
        world, must = self._world, self._world.story.must
        servers = self._servers()
        server = servers.get(machine.name)
        if server is None or world.is_api_away():
            return
        own = [m for m in self._maintenances() if m.spec.server_ref == machine.name]
        wanted = {attempt.image_ref for m in own if self._counts(m) for attempt in _reboots(m)}
        by_rollout = [m for m in own if boot.attempt in _attempts(m) and _is_rollouts_alone(m)]
        released = self._pool.status.released
        assigned = server.status.assigned_image_ref or (released.image_ref if released is not None else None)
        may = {assigned} | wanted
        must(boot.image in may, f"{machine.name} boots {boot.image}, and should {sorted(str(each) for each in may)}")
        ran = any(each.image == boot.image and each.passed_at is not None for each in machine.log[:-1])
        is_new = self.passage(boot.image).passed == 0 and boot.image not in wanted and not ran
        must(not is_new, f"{machine.name} boots {boot.image} out of its turn, which has not passed the canary")
        for m in by_rollout if not boot.again else ():
            self._judge_begin(machine, m, boot)

    def _counts(self, m: Maintenance) -> bool:
        """Whether it, or the boot order that it left, may still be carried out."""
        if m.status.phase not in FINAL_PHASES or m.status.finished_time is None:
            return True
        return self._world.clock.now - parse_time(m.status.finished_time) <= ENDING + self._world.most_skew

    def _judge_begin(self, machine: FakeMachine, m: Maintenance, boot: Boot) -> None:
        world, must, name = self._world, self._world.story.must, machine.name
        began = parse_time(m.status.reboot.started_time) if m.status.reboot is not None else boot.at
        held = self._left_alone.get(name)
        claimed = parse_time(m.status.claimed_time) if m.status.claimed_time else began
        must(
            held is None or min(claimed, began) - held <= SLACK, f"{name} was left alone since {held}, and is rebooted"
        )
        before = machine.log[-2] if len(machine.log) > 1 else None
        runs = before is not None and before.image == boot.image and before.passed_at is not None
        once_more = before is not None and (before.attempt in _attempts(m) or before.failed_at is not None)
        must(not runs or once_more, f"{name} ran {boot.image} already, and is rebooted into it by {m.name}")
        decided = world.decisions + len(world.history.pool_images)
        if _was_booted_away(machine, boot.image, {a for each in self._maintenances() for a in _attempts(each)}):
            self.passage(boot.image).begun.pop((name, decided), None)
        begun = self.passage(boot.image).begun.setdefault((name, decided), set())
        begun.add(m.name)
        must(len(begun) == 1, f"{name} boots twice for {boot.image}: {sorted(begun)}")

    def _judge_warning(self, job: FakeJob) -> None:
        """Who is ended was told so long before as the pool promises, unless it began after that."""
        if job.warned_at is None or job.warned_for is None or job.began is None:
            return
        now, world = self._world.clock.now, self._world
        warning = timedelta(seconds=self._pool.spec.maintenance.warning_seconds)
        late = job.began > job.warned_for - warning
        told = now - job.warned_at
        words = f"{job.name} is ended {told} after it was warned, and was promised {warning}"
        now_asked = any(
            r.policy == "Now" or r.name != REQUESTOR
            for m in self._maintenances()
            if m.spec.server_ref in job.servers and m.status.phase not in FINAL_PHASES
            for r in m.spec.requestors
        )
        world.story.must(late or now_asked or told >= warning - SLACK - world.most_skew, words)


def _was_booted_away(machine: FakeMachine, image: str, attempts: set[str]) -> bool:
    """Whether it was in use with the image, and was then booted into another one by a Maintenance.

    A reboot that people ask for while the rollout's own boot is under way comes right after it, and boots what is
    assigned by then, which may still be the image before.
    """
    used = [number for number, boot in enumerate(machine.log) if boot.image == image and boot.passed_at is not None]
    return bool(used) and any(boot.image != image and boot.attempt in attempts for boot in machine.log[used[0] :])


def _is_in_use(server: Server) -> bool:
    true = {c.type for c in server.status.conditions if c.status == "True"}
    return {"Ready", "Verified"} <= true


def _is_rollouts_alone(m: Maintenance) -> bool:
    return {r.name for r in m.spec.requestors if r.has_turn} == {REQUESTOR}


def _reboots(m: Maintenance) -> list[Any]:
    return [*m.status.attempts, *([m.status.reboot] if m.status.reboot is not None else [])]


def _attempts(m: Maintenance) -> set[str]:
    return {attempt.id for attempt in _reboots(m)}
