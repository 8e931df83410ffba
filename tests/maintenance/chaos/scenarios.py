"""What is asked for in each history, and what must come of it when nothing goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.contract import (
    DRAIN_REQUESTED,
    POWER_CYCLE_REQUESTED,
    REBOOT_REQUESTED,
    REIMAGE_REQUESTED,
)
from tests.maintenance.chaos import invariants, liveness, people
from tests.maintenance.chaos.accounts import Accounts
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.injections import INJECTIONS, Injection, Strike
from tests.maintenance.chaos.rollout import Rollout
from tests.maintenance.chaos.world import NEW, NOON, Fleet, World

HORIZON_SECONDS: Final = 10 * 3600
QUIET_SECONDS: Final = 900


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """`begin` plans what people and jobs do. boots: how many each server needs if nothing goes wrong."""

    name: str
    begin: Callable[[World], None]
    fleet: Fleet = field(default_factory=Fleet)
    boots: int = 1


def run(
    scenario: Scenario,
    *,
    strike: tuple[int, str, Injection] | None = None,
    live: bool = False,
    accounts: Accounts | None = None,
    prefix: str = "s",
    start: datetime = NOON,
) -> World:
    """Play it to its end and check everything. Raises: InvariantBroken, with the story."""
    title = scenario.name
    if strike is not None:
        number, moment, injection = strike
        title += f" / {'live' if live else 'killed'} {moment} effect {number} / {injection.name}"
    world = World(replace(scenario.fleet, accounts=accounts, prefix=prefix, start=start), title)
    world.start_controller()
    world.run(10)
    scenario.begin(world)
    most_boots = scenario.boots
    if strike is not None:
        world.meter.trigger = Strike(world, *strike, live=live)
        world.is_troubled = strike[2] is not INJECTIONS[0]
        most_boots += strike[2].more_boots
    world.run(HORIZON_SECONDS, until=lambda: not world.has_plans and world.is_over())
    world.run(QUIET_SECONDS)
    invariants.check_end(world)
    liveness.check_asked(world, strike[2].permits if strike is not None else ())
    invariants.check_boots(world, scenario.boots if strike is None else 0, most_boots)
    world.story.judge()
    return world


def _job(world: World, name: str, server: str, seconds: float | None, **more: Any) -> None:
    ends = world.clock.in_seconds(seconds) if seconds is not None else None
    world.start_job(FakeJob(name, (server,), ends_at=ends, **more))


def _reboot_when_idle(world: World) -> None:
    _job(world, "training", world.names[0], 900)
    world.later(60, lambda: people.ask(world, world.names[0], REBOOT_REQUESTED, "WhenIdle", "new kernel"))


def _reimage_when_idle(world: World) -> None:
    _job(world, "4711", world.names[0], 700, kind="SlurmJob")
    message = f"image={world.images[NEW]}"
    world.later(30, lambda: people.ask(world, world.names[0], REIMAGE_REQUESTED, "WhenIdle", message))


def _reboot_by_deadline(world: World) -> None:
    _job(world, "training", world.names[0], None)
    _job(world, "web", world.names[0], 100)
    world.later(60, lambda: people.ask(world, world.names[0], REBOOT_REQUESTED, "Deadline", "deadline=+30m"))


def _reboot_now(world: World) -> None:
    _job(world, "training", world.names[0], None, do_not_disrupt=True)
    requestor = {"name": "user-alice", "action": "Reboot", "policy": "Now"}
    world.later(60, lambda: people.file(world, world.names[0], 1, requestor))


def _drain(world: World) -> None:
    _job(world, "training", world.names[0], 300)
    world.later(60, lambda: people.ask(world, world.names[0], DRAIN_REQUESTED, "WhenIdle", "look at its fan"))
    world.later(3000, lambda: _end_drain(world))


def _end_drain(world: World) -> None:
    liveness.check_drained(world)
    people.withdraw(world)


def _reimage_merged_with_a_reboot(world: World) -> None:
    _job(world, "training", world.names[0], 600)
    requestor = {"name": "user-alice", "action": "Reimage", "policy": "WhenIdle", "imageRef": world.images[NEW]}
    world.later(60, lambda: people.file(world, world.names[0], 1, requestor))
    world.later(120, lambda: people.ask(world, world.names[0], REBOOT_REQUESTED, "WhenIdle", "it leaks memory"))


def _reboot_then_kept_drained(world: World) -> None:
    _job(world, "training", world.names[0], 300)
    world.later(60, lambda: people.ask(world, world.names[0], DRAIN_REQUESTED, "WhenIdle", "look at its fan"))
    world.later(60, lambda: people.ask(world, world.names[0], REBOOT_REQUESTED, "WhenIdle"))
    world.later(5400, lambda: _end_drain(world))


def _power_cycle(world: World) -> None:
    world.later(60, lambda: people.ask(world, world.names[0], POWER_CYCLE_REQUESTED, "WhenIdle", "PSU firmware"))


def _two_servers(world: World) -> None:
    for name in world.names:
        _job(world, f"training-{name}", name, 600)
        world.later(60, lambda name=name: people.ask(world, name, REBOOT_REQUESTED, "WhenIdle"))  # type: ignore[misc]


def _deadline_from_the_command_line(world: World) -> None:
    _job(world, "4711", world.names[0], None, kind="SlurmJob")
    deadline = rfc3339(world.clock.in_seconds(1200))
    requestor = {"name": "user-bob", "action": "Reimage", "policy": "Deadline", "deadlineTime": deadline}
    world.later(30, lambda: people.file(world, world.names[0], 1, {**requestor, "imageRef": world.images[NEW]}))


def _turns(world: World) -> None:
    """To and fro, with a reboot by an administrator, which boots the old image; once taken back after the claim."""
    server = world.names[0]
    _job(world, "training", server, 900)
    moves = (
        (30, "Waits"),
        (300, "Steered"),
        (600, "Closed"),
        (1000, "Waits"),
        (1300, "Closed"),
        (1500, "Steered"),
        (1800, "Closed"),
        (4500, "Granted"),
        (4502, "Closed"),
        (5100, "Granted"),
    )
    Rollout(world, server, world.images[NEW], moves)
    world.later(2100, lambda: people.ask(world, server, REBOOT_REQUESTED, "WhenIdle", "it leaks memory"))


def _turns_with_a_deadline(world: World) -> None:
    """It is over before the turn comes; once taken back while the job is warned, which it outlives."""
    server = world.names[0]
    _job(world, "4711", server, None, kind="SlurmJob")
    deadline = rfc3339(world.clock.in_seconds(900))
    moves = ((30, "Waits"), (60, "Closed"), (1800, "Granted"), (2000, "Waits"), (3600, "Closed"), (4500, "Granted"))
    Rollout(world, server, world.images[NEW], moves, policy="Deadline", deadline_time=deadline, staging="Later")


def _turns_in_which_jobs_still_start(world: World) -> None:
    """Reserved, moved, drained, reserved again until it is over, opened; at last until after it was drained."""
    server = world.names[0]
    _job(world, "4711", server, 1500, kind="SlurmJob", share=0.5, has_limit=True)
    moves = (
        (30, "Closed@3000"),
        (400, "Closed@1500"),
        (900, "Closed"),
        (1100, "Closed@1500"),
        (1700, "Waits"),
        (2100, "Closed@2700"),
        (2500, "Steered"),
        (2900, "Closed@3600"),
        (4300, "Granted"),
    )
    Rollout(world, server, world.images[NEW], moves)
    _starts(world, 250, 4712, 1200, starts=True)
    _starts(world, 700, 4713, 1200, starts=False)
    _starts(world, 1000, 4714, 60, starts=False)
    _starts(world, 1300, 4715, 90, starts=True)
    _starts(world, 3200, 4716, 300, starts=True)
    _starts(world, 3900, 4717, 60, starts=False)


def _claimed_before_it_closes(world: World) -> None:
    """Its job ends long before its time; once its claim is taken back."""
    server = world.names[0]
    _job(world, "4711", server, 400, kind="SlurmJob", share=0.5)
    moves = ((30, "Closed@7200"), (700, "Granted"), (702, "Closed@7200"), (1200, "Granted"))
    Rollout(world, server, world.images[NEW], moves)
    _starts(world, 1000, 4712, 120, starts=True)


def _starts(world: World, seconds: float, number: int, lasts: float, *, starts: bool) -> None:
    """A job with that limit is there then, and Slurm starts it or not, as long as nothing but a crash gets in its
    way."""

    def come() -> None:
        server = world.names[0]
        job = FakeJob(str(number), (server,), "SlurmJob", world.clock.in_seconds(lasts), share=0.25, has_limit=True)
        started = world.start_job(job)
        may = starts and world.workloads.reserves
        world.story.must(world.is_troubled or started is may, f"job {number} starts on {server}: {started}")

    world.later(seconds, come)


SCENARIOS: Final = (
    Scenario(name="reboot when idle", begin=_reboot_when_idle),
    Scenario(
        name="reimage when idle, by reset",
        begin=_reimage_when_idle,
        fleet=Fleet(settings={"reboot_methods": ("Reset", "PowerCycle")}),
    ),
    Scenario(name="reboot by a deadline", begin=_reboot_by_deadline, fleet=Fleet(settings={"warning_seconds": 600})),
    Scenario(
        name="reimage by a deadline, cordoned when planned",
        begin=_deadline_from_the_command_line,
        fleet=Fleet(settings={"warning_seconds": 600, "cordon": "WhenPlanned", "reboot_methods": ("Reboot", "Reset")}),
    ),
    Scenario(name="reboot now", begin=_reboot_now),
    Scenario(name="drain", begin=_drain, boots=0),
    Scenario(
        name="a reimage merged with a reboot",
        begin=_reimage_merged_with_a_reboot,
        fleet=Fleet(settings={"reboot_methods": ("Kexec", "Reset")}),
    ),
    Scenario(name="reboot, then kept drained", begin=_reboot_then_kept_drained),
    Scenario(name="power cycle", begin=_power_cycle, fleet=Fleet(slurm=False)),
    Scenario(name="two servers, budget one", begin=_two_servers, fleet=Fleet(servers=2)),
    Scenario(name="a rollout's turns, and a reboot", begin=_turns, boots=2),
    Scenario(
        name="a rollout's turns, by a deadline",
        begin=_turns_with_a_deadline,
        fleet=Fleet(settings={"warning_seconds": 600, "reboot_methods": ("Reset", "PowerCycle")}),
    ),
    Scenario(name="a rollout's turns, in which jobs still start", begin=_turns_in_which_jobs_still_start),
    Scenario(
        name="the same with a Slurm that cannot reserve",
        begin=_turns_in_which_jobs_still_start,
        fleet=Fleet(reserves=False),
    ),
    Scenario(name="claimed before it closes", begin=_claimed_before_it_closes),
)
