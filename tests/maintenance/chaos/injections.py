"""What goes wrong, beside the crash: each once, at one effect of the executor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from provisioner.api.machinery.errors import Conflict, Retryable
from provisioner.api.nodes.contract import POWER_CYCLE_REQUESTED
from provisioner.maintenance.status.verdict import Cause
from tests.maintenance.chaos import people
from tests.maintenance.chaos.client import Effect
from tests.maintenance.chaos.fake_machine import Habit
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.story import SimulatedCrash
from tests.maintenance.chaos.world import World

FROZEN_SECONDS: Final = 300
JOB_SECONDS: Final = 1800
GIVEN_UP_SECONDS: Final = 3 * 3600


@dataclass(frozen=True, kw_only=True)
class Injection:
    """`strike` happens in the middle of things. `more_boots`: how many boots it may cost beside those asked for.

    permits: the causes with which a Maintenance may end as Failed for it, if the history bears that out (liveness.py);
    of every other history what was asked for comes about.
    """

    name: str
    strike: Callable[[World], None] = lambda world: None
    fault: Callable[[], Exception] | None = None
    answer_lost: bool = False
    more_boots: int = 0
    permits: tuple[Cause, ...] = ()
    two_leaders: bool = False
    stale: bool = False


def _habit(habit: Habit, *, lasting: bool = False) -> Callable[[World], None]:
    def strike(world: World) -> None:
        for machine in world.machines.values():
            if lasting:
                machine.keep(habit)
            else:
                machine.habits.append(habit)

    return strike


def _first(act: Callable[[World, str], None]) -> Callable[[World], None]:
    return lambda world: act(world, world.names[0])


def _second_request(policy: str) -> Callable[[World], None]:
    return lambda world: people.ask(world, world.names[0], POWER_CYCLE_REQUESTED, policy)


def _start_jobs(world: World) -> None:
    for name in world.names:
        for kind in ("Pod", "SlurmJob"):
            ends = world.clock.in_seconds(JOB_SECONDS)
            world.start_job(FakeJob(f"late-{kind.lower()}-{name}", (name,), kind=kind, ends_at=ends))  # type: ignore[arg-type]


def _reboot_behind_our_back(world: World) -> None:
    """Somebody presses the power button."""
    machine = world.machines[world.names[0]]
    if machine.state == "Running":
        machine.go_down(None)
        machine.boot(world.hosts[machine.name].firmware_image(), 300, "somebody pressed its button")


def _vanish(world: World) -> None:
    """Whether a server without its Node is idle nobody knows: under WhenIdle it waits for a person, who gives up."""
    name = world.names[0]
    people.vanish(world, name)
    world.later(GIVEN_UP_SECONDS, lambda: people.withdraw(world, name))


def _image_goes_for_an_hour(world: World) -> None:
    """No boot host has the images; later they have them again."""
    for name in world.images:
        world.image_is_there(name, False)
        world.later(3600, lambda name=name: world.image_is_there(name, True))  # type: ignore[misc]


def _both_dead(world: World) -> None:
    _habit("BMC is dead", lasting=True)(world)
    _habit("agent is deaf", lasting=True)(world)


INJECTIONS: Final = (
    Injection(name="nothing else"),
    Injection(name="409", fault=lambda: Conflict("somebody else was faster (injected)", after_seconds=0.1)),
    Injection(name="503", fault=lambda: Retryable("no answer (injected, HTTP 503)")),
    Injection(name="lost answer", fault=lambda: Retryable("connection reset (injected)"), answer_lost=True),
    Injection(name="lost watch", stale=True),
    Injection(name="two leaders", two_leaders=True),
    # Where one method is all there is, it has failed then.
    Injection(name="a boot never returns", strike=_habit("never returns"), more_boots=1, permits=("RebootFailed",)),
    Injection(
        name="no boot ever returns",
        strike=_habit("never returns", lasting=True),
        more_boots=20,
        permits=("RebootFailed",),
    ),
    Injection(name="a boot on the wrong image", strike=_habit("wrong image"), more_boots=1, permits=("WrongImage",)),
    Injection(
        name="every boot on the wrong image",
        strike=_habit("wrong image", lasting=True),
        more_boots=4,
        permits=("WrongImage",),
    ),
    Injection(name="too fast to be seen NotReady", strike=_habit("too fast", lasting=True)),
    Injection(name="checks fail", strike=_habit("checks fail", lasting=True), permits=("NotVerified",)),
    Injection(name="the agent is deaf", strike=_habit("agent is deaf", lasting=True)),
    # Where the agent cannot be told, or the power is to be cut, nothing is left.
    Injection(name="the BMC is dead", strike=_habit("BMC is dead", lasting=True), permits=("RebootFailed",)),
    Injection(name="BMC dead, agent deaf", strike=_both_dead, permits=("RebootFailed",)),
    # No boot is ordered into it; a reboot that was begun by then comes to its end.
    Injection(name="the image is gone for an hour", strike=_image_goes_for_an_hour, permits=("RebootFailed",)),
    Injection(
        name="the machine vanishes",
        strike=_vanish,
        permits=("NodeGone", "NodeReplaced", "RebootFailed", "NodeNotReady"),
    ),
    Injection(
        name="the Node is deleted",
        strike=_first(people.delete_node),
        more_boots=1,
        permits=("NodeGone", "NodeReplaced"),
    ),
    Injection(name="the server is renamed", strike=_first(people.rename), permits=("ServerGone",)),
    Injection(name="cordoned by an administrator", strike=_first(people.cordon)),
    Injection(name="a second request, patient", strike=_second_request("WhenIdle"), more_boots=1),
    Injection(name="a second request, now", strike=_second_request("Now"), more_boots=1),
    Injection(name="withdrawn", strike=people.withdraw),
    Injection(name="the Maintenance is deleted", strike=people.delete_maintenances, more_boots=1),
    Injection(name="jobs start", strike=_start_jobs),
    Injection(name="rebooted behind our back", strike=_reboot_behind_our_back, more_boots=2),
)


class Strike:
    """The trigger: at effect `number`, "before" or "after" it, strikes once; then the process crashes, unless live."""

    def __init__(self, world: World, number: int, moment: str, injection: Injection, *, live: bool) -> None:
        self._world, self._number, self._moment = world, number, moment
        self._injection, self._live = injection, live
        self._fault_due = False
        self.struck = False

    def __call__(self, effect: Effect, moment: str) -> None:
        if self._fault_due and moment == ("after" if self._injection.answer_lost else "before"):
            self._fault_due = False
            self._raise_fault()
        if self.struck or effect.number != self._number or moment != self._moment:
            return
        self.struck = True
        self._world.story.tell("CHAOS", f"{self._injection.name}, {moment} #{effect.number}")
        self._injection.strike(self._world)
        self._trouble_the_executors()
        if not self._live:
            self._fault_due = self._injection.fault is not None
            raise SimulatedCrash
        if self._injection.fault is not None:
            self._raise_fault()

    def _raise_fault(self) -> None:
        if self._injection.fault is not None:
            self._world.story.tell("CHAOS", self._injection.name)
            raise self._injection.fault()

    def _trouble_the_executors(self) -> None:
        world = self._world
        if self._injection.stale:
            if self._live:
                world.replicas[0].freeze(FROZEN_SECONDS)
            else:
                world.freeze_next = FROZEN_SECONDS
        if self._injection.two_leaders:
            old = world.replicas[0]
            other = world.start_controller()
            other.work()
            if self._live:
                world.later(FROZEN_SECONDS, lambda: world.crash(old) if old in world.replicas else None)
