"""A pool's life in any order of events: images good and bad, people, jobs, power, crashes. The same invariants.

Each history ends with everybody going home: jobs end, machines and images are sound again, nobody holds a server. Then
the last image that was wanted is everywhere. `make chaos` (CHAOS=long) tries many more and longer ones.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Final

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from provisioner.api.machinery.errors import Conflict, Retryable
from provisioner.api.nodes.contract import REBOOT_REQUESTED
from provisioner.api.pools.upgrade_strategy import UpgradeDeadline, Wave
from tests.maintenance.chaos import people
from tests.maintenance.chaos.client import Effect
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.replay import LONG, SEED
from tests.maintenance.chaos.story import SimulatedCrash
from tests.maintenance.chaos.world import NEW, OLD, STALE, World
from tests.rollout.chaos import administrators
from tests.rollout.chaos.outcome import check_end
from tests.rollout.chaos.safety import Safety
from tests.rollout.chaos.scenarios import decide, fleet, play_to_its_end

SERVERS: Final = 4
LAST_JOB_SECONDS: Final = 7200

servers = st.integers(0, SERVERS - 1)
seconds = st.sampled_from((1, 60, 400, 1800, 7200))
HABITS: Final = ("never returns", "checks fail", "kubelet flaps", "kubelet dies")
STRATEGIES: Final = (
    {},
    {"waves": (Wave(share=50, soak_seconds=120),)},
    {"max_failures": 2, "max_unavailable": "50%"},
    {"deadline": UpgradeDeadline(after_seconds=3600)},
)


@seed(SEED)
class Poollife(RuleBasedStateMachine):
    """Four servers in two racks, two at a time."""

    @initialize(strategy=st.sampled_from(STRATEGIES))
    def begin(self, strategy: dict[str, Any]) -> None:
        self.world = World(fleet(servers=SERVERS, **strategy), "any order of events in a pool")
        Safety(self.world)
        self.world.start_controller()
        self.world.meter.trigger = self._trigger
        self.armed: list[tuple[int, str, str]] = []
        self.jobs = 0
        self.world.run(60)

    def _name(self, number: int) -> str:
        return self.world.names[number]

    def _trigger(self, effect: Effect, moment: str) -> None:
        for plan in self.armed:
            number, side, what = plan
            if effect.number >= number and side == moment:
                self.armed.remove(plan)
                if what == "crash":
                    raise SimulatedCrash
                if what == "409" and moment == "before":
                    raise Conflict("somebody else was faster (injected)", after_seconds=0.1)
                raise Retryable("no answer (injected)")

    @rule(image=st.sampled_from((OLD, NEW, STALE)))
    def another_image_is_wanted(self, image: str) -> None:
        self.world.pool_image(image)
        self.world.run(0)

    @rule(image=st.sampled_from((NEW, STALE)), habit=st.sampled_from(HABITS))
    def an_image_is_bad(self, image: str, habit: str) -> None:
        administrators.spoil(self.world, image, habit)

    @rule(how_long=seconds)
    def time_passes(self, how_long: int) -> None:
        self.world.run(how_long)

    @rule(number=servers, kind=st.sampled_from(("Pod", "PodGroup")), lasts=seconds)
    def a_job_starts(self, number: int, kind: Any, lasts: int) -> None:
        self.jobs += 1
        names = [self._name(number)]
        if kind == "PodGroup":
            names.append(self._name((number + 1) % SERVERS))
        ends = self.world.clock.now + timedelta(seconds=lasts)
        self.world.start_job(FakeJob(f"job-{self.jobs}", tuple(names), kind=kind, ends_at=ends))
        self.world.run(0)

    @precondition(lambda self: self.world.workloads.jobs)
    @rule()
    def a_job_ends(self) -> None:
        self.world.workloads.end(next(iter(self.world.workloads.jobs)))
        self.world.run(0)

    @rule(paused=st.booleans())
    def somebody_pauses_or_resumes(self, paused: bool) -> None:
        administrators.set_strategy(self.world, paused=paused)
        self.world.run(0)

    @rule()
    def somebody_decides_that_it_is_tried_again(self) -> None:
        administrators.retry(self.world)
        self.world.run(0)

    @rule(number=servers, held=st.booleans())
    def somebody_holds_or_releases(self, number: int, held: bool) -> None:
        (administrators.hold if held else administrators.release)(self.world, self._name(number))
        self.world.run(0)

    @rule(number=servers, excluded=st.booleans())
    def somebody_excludes(self, number: int, excluded: bool) -> None:
        administrators.exclude(self.world, self._name(number), excluded=excluded)
        self.world.run(0)

    @rule(number=servers, policy=st.sampled_from(("WhenIdle", "Now")))
    def somebody_asks_for_a_reboot(self, number: int, policy: str) -> None:
        people.ask(self.world, self._name(number), REBOOT_REQUESTED, policy)
        self.world.run(0)

    @rule(number=servers)
    def power_is_cut(self, number: int) -> None:
        administrators.cut_power(self.world, self._name(number))
        self.world.run(0)

    @rule(rack=st.integers(0, 1), how_long=seconds)
    def a_rack_is_lost(self, rack: int, how_long: int) -> None:
        names = self.world.names[rack * SERVERS // 2 : (rack + 1) * SERVERS // 2]
        administrators.power_fails(self.world, *names)
        self.world.later(how_long, lambda: administrators.power_returns(self.world, *names))
        self.world.run(0)

    @precondition(lambda self: self.world.replicas)
    @rule()
    def the_leader_crashes(self) -> None:
        self.world.crash(self.world.replicas[0])
        self.world.run(0)

    @rule(
        ahead=st.integers(1, 12),
        side=st.sampled_from(("before", "after")),
        what=st.sampled_from(("crash", "409", "503")),
    )
    def trouble_is_ahead(self, ahead: int, side: str, what: str) -> None:
        self.armed.append((len(self.world.meter.effects) + ahead, side, what))

    @precondition(lambda self: len(self.world.replicas) == 1)
    @rule(together=seconds)
    def another_leads_too(self, together: int) -> None:
        old = self.world.replicas[0]
        self.world.start_controller()
        self.world.later(together, lambda: self.world.crash(old) if old in self.world.replicas else None)
        self.world.run(1)

    @precondition(lambda self: self.world.replicas)
    @rule(how_long=st.sampled_from((1, 60, 400)), kinds=st.sampled_from(((), ("maintenances",), ("servers", "nodes"))))
    def a_watch_is_lost(self, how_long: int, kinds: tuple[str, ...]) -> None:
        self.world.replicas[-1].freeze(how_long, *kinds)

    @precondition(lambda self: not self.world.is_api_away())
    @rule()
    def the_api_server_goes(self) -> None:
        self.world.api_goes(600)
        self.world.run(700)

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        self.armed.clear()
        world.story.tell("test", "everybody goes home")
        administrators.set_strategy(world, paused=False)
        for name in world.names:
            administrators.release(world, name)
            administrators.exclude(world, name, excluded=False)
        for image in (NEW, STALE):
            administrators.spoil(world, image)
        world.run(LAST_JOB_SECONDS)
        decide(world)
        play_to_its_end(world)
        check_end(world)


TestPoollife = Poollife.TestCase
TestPoollife.settings = settings(
    max_examples=int(os.environ.get("CHAOS_HISTORIES", 10_000 if LONG else 4)),
    stateful_step_count=60 if LONG else 20,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)
