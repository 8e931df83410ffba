"""Any order of events: requests, withdrawals, jobs, crashes, faults, people. The same executor, the same invariants.

Each history ends with everybody going home: jobs end, machines are repaired, and whoever wanted a server out of use
lets it go once it was. Then everything that was asked for must have come about. `make chaos` (CHAOS=long) tries many
more and longer ones.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, Final

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from provisioner.api.machinery.errors import Conflict, Retryable
from provisioner.api.nodes.contract import (
    DRAIN_REQUESTED,
    POWER_CYCLE_REQUESTED,
    REBOOT_REQUESTED,
    REIMAGE_REQUESTED,
)
from tests.maintenance.chaos import invariants, liveness, people
from tests.maintenance.chaos.client import Effect
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.history import has_ended, phase_of
from tests.maintenance.chaos.replay import LONG, SEED
from tests.maintenance.chaos.rollout import Rollout
from tests.maintenance.chaos.story import SimulatedCrash
from tests.maintenance.chaos.world import NEW, OLD, Fleet, World

LAST_JOB_SECONDS: Final = 3600
HOME_SECONDS: Final = 24 * 3600
QUIET_SECONDS: Final = 900
SERVERS: Final = 3
MOST_DRAINS: Final = 4 * SERVERS

REQUESTS: Final = (REBOOT_REQUESTED, REIMAGE_REQUESTED, POWER_CYCLE_REQUESTED, DRAIN_REQUESTED)
POLICIES: Final = (("WhenIdle", ""), ("Deadline", "deadline=+20m"), ("Now", ""))

servers = st.integers(0, SERVERS - 1)
seconds = st.sampled_from((1, 7, 60, 600, 3600))


@seed(SEED)
class Fleetlife(RuleBasedStateMachine):
    """Three servers of one pool, of which one may be down at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(Fleet(servers=SERVERS, settings={"warning_seconds": 300}), "any order of events")
        self.world.start_controller()
        self.world.meter.trigger = self._trigger
        self.world.is_troubled = True
        self.armed: list[tuple[int, str, str]] = []
        self.jobs = 0
        self.rollouts: dict[str, Rollout] = {}

    @initialize()
    def begin(self) -> None:
        self.world.run(5)

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

    @rule(number=servers, type_=st.sampled_from(REQUESTS), policy=st.sampled_from(POLICIES))
    def somebody_asks(self, number: int, type_: str, policy: tuple[str, str]) -> None:
        people.ask(self.world, self._name(number), type_, *policy)
        self.world.run(0)

    @rule(number=servers, turn=st.sampled_from(("Waits", "Steered", "Closed", "Granted")))
    def a_rollout_moves_a_turn(self, number: int, turn: str) -> None:
        name = self._name(number)
        if name not in self.rollouts:
            self.rollouts[name] = Rollout(self.world, name, self.world.images[NEW])
        self.rollouts[name].move(turn)
        self.world.run(0)

    @rule()
    def everything_is_withdrawn(self) -> None:
        people.withdraw(self.world)
        self.world.run(0)

    @rule()
    def maintenances_are_deleted(self) -> None:
        people.delete_maintenances(self.world)
        self.world.run(0)

    @rule(number=servers, kind=st.sampled_from(("Pod", "PodGroup", "SlurmJob")), lasts=seconds, precious=st.booleans())
    def a_job_starts(self, number: int, kind: Any, lasts: int, precious: bool) -> None:
        self.jobs += 1
        names = [self._name(number)]
        if kind == "PodGroup":
            names.append(self._name((number + 1) % SERVERS))
        ends = self.world.clock.now + timedelta(seconds=lasts)
        job = FakeJob(f"job-{self.jobs}", tuple(names), kind=kind, ends_at=ends, do_not_disrupt=precious)
        self.world.start_job(job)
        self.world.run(0)

    @rule(how_long=seconds)
    def time_passes(self, how_long: int) -> None:
        self.world.run(how_long)

    @precondition(lambda self: self.world.replicas)
    @rule()
    def the_leader_crashes(self) -> None:
        self.world.crash(self.world.replicas[0])
        self.world.run(0)

    @rule(
        ahead=st.integers(1, 8),
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
    @rule(how_long=seconds)
    def a_watch_is_lost(self, how_long: int) -> None:
        self.world.replicas[-1].freeze(how_long)

    @rule(number=servers, habit=st.sampled_from(("never returns", "wrong image", "too fast")))
    def a_boot_will_go_wrong(self, number: int, habit: Any) -> None:
        self.world.machines[self._name(number)].habits.append(habit)

    @rule(number=servers)
    def an_agent_goes_deaf(self, number: int) -> None:
        self.world.machines[self._name(number)].keep("agent is deaf")

    @rule(number=servers)
    def an_administrator_cordons(self, number: int) -> None:
        if self._name(number) not in self.world.cordoned:
            people.cordon(self.world, self._name(number))
            self.world.run(0)

    @rule(name=st.sampled_from((OLD, NEW)))
    def the_pool_wants_another_image(self, name: str) -> None:
        self.world.pool_image(name)
        self.world.run(0)

    @rule(number=servers)
    def a_machine_dies(self, number: int) -> None:
        if self.world.machines[self._name(number)].state != "Dead":
            self.world.machines[self._name(number)].die()
            self.world.run(0)

    def teardown(self) -> None:
        world = self.world
        self.armed.clear()
        for machine in world.machines.values():
            machine.habits.clear()
            machine.lasting.clear()
        world.story.tell("test", "everybody goes home")
        for rollout in self.rollouts.values():
            rollout.move("Granted")
        world.run(LAST_JOB_SECONDS)
        for _ in range(MOST_DRAINS):
            world.run(HOME_SECONDS, until=lambda: self._all_is_over() or bool(self._kept_drained()))
            if self._all_is_over():
                break
            for name in self._kept_drained():
                people.withdraw_conditions(world, name, DRAIN_REQUESTED)
        world.run(QUIET_SECONDS)
        invariants.check_end(world)
        liveness.check_asked(world, None)
        world.story.judge()

    def _all_is_over(self) -> bool:
        return not self.world.has_plans and bool(self.world.replicas) and all(map(has_ended, self.world.maintenances()))

    def _kept_drained(self) -> list[str]:
        """Servers that are out of use because somebody wants them so."""
        return [m["spec"]["serverRef"] for m in self.world.maintenances() if phase_of(m) == "Drained"]


TestFleetlife = Fleetlife.TestCase
TestFleetlife.settings = settings(
    max_examples=int(os.environ.get("CHAOS_HISTORIES", 20_000 if LONG else 12)),
    stateful_step_count=60 if LONG else 25,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)
