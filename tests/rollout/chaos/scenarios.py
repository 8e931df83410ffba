"""Rollouts of a small pool, each played to its end, with people who decide where it stops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from provisioner.api.nodes.contract import REBOOT_REQUESTED
from provisioner.api.pools.upgrade_strategy import Canary, DomainCap, Stragglers, UpgradeDeadline, UpgradeStrategy, Wave
from tests.maintenance.chaos import people
from tests.maintenance.chaos.accounts import Accounts
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.history import has_ended
from tests.maintenance.chaos.injections import Injection, Strike
from tests.maintenance.chaos.world import NEW, NOON, OLD, STALE, Fleet, World
from tests.rollout.chaos import administrators
from tests.rollout.chaos.outcome import check_complete, check_end, check_stopped, is_complete, is_stopped
from tests.rollout.chaos.safety import Safety

HOUR: Final = 3600.0
HORIZON_SECONDS: Final = 24 * HOUR
QUIET_SECONDS: Final = 900.0
REPAIR_SECONDS: Final = 2 * HOUR
MOST_DECISIONS: Final = 6
_LIMITED: Final[dict[str, Any]] = {"kind": "SlurmJob", "share": 0.25, "has_limit": True}


def strategy(**changes: Any) -> UpgradeStrategy:
    """Two at a time, one of them first."""
    usual = {"max_parallel": 2, "max_unavailable": "100%", "canary": Canary(count=1, soak_seconds=300)}
    return UpgradeStrategy(**{**usual, **changes})


def fleet(servers: int = 4, budget: int = 3, slurm: bool = False, **changes: Any) -> Fleet:
    settings = {"warning_seconds": 600}
    rollout = strategy(**changes)
    return Fleet(servers=servers, racks=2, budget=budget, slurm=slurm, settings=settings, rollout=rollout)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """`begin` plans what people and jobs do."""

    name: str
    begin: Callable[[World], None]
    fleet: Fleet = field(default_factory=fleet)


def run(
    scenario: Scenario,
    *,
    strike: tuple[int, str, Injection] | None = None,
    live: bool = False,
    accounts: Accounts | None = None,
    prefix: str = "s",
    start: datetime = NOON,
) -> World:
    """Play it until the pool runs one image, and check everything. Raises: InvariantBroken, with the story."""
    title = scenario.name
    if strike is not None:
        number, moment, injection = strike
        title += f" / {'live' if live else 'killed'} {moment} effect {number} / {injection.name}"
    world = World(replace(scenario.fleet, accounts=accounts, prefix=prefix, start=start), title)
    Safety(world)
    world.start_controller()
    world.run(60)
    scenario.begin(world)
    if strike is not None:
        struck = Strike(world, *strike, live=live)
        world.meter.trigger = struck
        world.meter.effects.clear()
    play_to_its_end(world)
    check_end(world)
    return world


def play_to_its_end(world: World) -> None:
    """Until the rollout is complete; where it stops a person looks whether it was right, repairs, and decides."""
    for _ in range(MOST_DECISIONS):
        world.run(HORIZON_SECONDS, until=lambda: is_over(world) or (not world.has_plans and is_stopped(world)))
        world.run(QUIET_SECONDS)
        if is_stopped(world):
            check_stopped(world)
            world.story.judge()
            decide(world)
        elif broken(world):
            decide(world)
        elif is_over(world):
            break
    check_complete(world)
    world.story.judge()


def is_over(world: World) -> bool:
    """Whether nothing is to come: it is complete, somebody leads, and every Maintenance has ended."""
    rests = bool(world.replicas) and all(has_ended(body) for body in world.maintenances())
    rests = rests and not world.has_plans and not world.workloads.jobs
    image = administrators.wanted_image(world)
    return (
        rests
        and is_complete(world)
        and all(
            machine.running_image == image
            or not machine.is_fit()
            or administrators.is_left_alone(world, name)
            or administrators.runs_by_hand(world, name)
            for name, machine in world.machines.items()
        )
    )


def decide(world: World) -> None:
    """A person goes back where the image is bad, and has what failed tried again where it is not."""
    image = administrators.wanted_image(world)
    is_bad = any(machine.spoiled.get(image) for machine in world.machines.values())
    if is_bad:
        world.pool_image(OLD)
    repair(world)
    if not is_bad:
        administrators.retry(world)


def broken(world: World) -> list[str]:
    """Servers that are not in use."""
    return [name for name in world.names if not world.machines[name].is_fit() and name in world.nodes()]


def repair(world: World) -> None:
    """A person has every server rebooted that is not in use: of one that is out of use a rollout knows no way back."""
    for name in broken(world):
        people.ask(world, name, REBOOT_REQUESTED, "Now", "back to where it was")
    world.run(REPAIR_SECONDS)


def _job(world: World, name: str, servers: tuple[int, ...], hours: float | None, **more: Any) -> None:
    ends = world.clock.in_seconds(hours * HOUR) if hours is not None else None
    world.start_job(FakeJob(name, tuple(world.names[n] for n in servers), ends_at=ends, **more))


def _idle(world: World) -> None:
    world.pool_image(NEW)


def _as_jobs_end(world: World) -> None:
    _job(world, "pod", (0,), 1)
    _job(world, "gang", (1, 2), 2, kind="PodGroup")
    world.later(600, lambda: _job(world, "late", (3,), 1))
    world.pool_image(NEW)


def _slurm(world: World) -> None:
    _job(world, "4711", (0,), 0.5, kind="SlurmJob")
    _job(world, "4712", (1, 2), 0.7, kind="SlurmJob")
    world.pool_image(NEW)


def _stragglers(world: World) -> None:
    """One whose long job ends when its time is over, and one whose long job ends early; Slurm fills what is free."""
    for number, name in enumerate(("4711", "4712")):
        _job(world, name, (number,), 1.5, **_LIMITED)
        _job(world, f"{name}-short", (number,), 0.6, **_LIMITED)
    for minutes in range(15, 90, 15):
        world.later(minutes * 60, lambda m=minutes: _job(world, f"4800-{m}", (0,), 0.4, **_LIMITED))  # type: ignore[misc]
    world.later(3000, lambda: world.workloads.end("4712"))
    world.pool_image(NEW)


def _deadline(world: World) -> None:
    _job(world, "gang", (0, 1), None, kind="PodGroup")
    _job(world, "pod", (2,), None)
    world.pool_image(NEW)


def _undone(world: World) -> None:
    _job(world, "pod", (3,), 1)
    world.pool_image(NEW)
    world.later(1300, lambda: world.pool_image(OLD))


def _changed_again(world: World) -> None:
    _job(world, "pod", (3,), 1)
    world.pool_image(NEW)
    world.later(700, lambda: world.pool_image(STALE))


def _left_alone(world: World) -> None:
    """What comes first goes by whoever may; the others follow when people let them."""
    administrators.hold(world, world.names[0])
    administrators.exclude(world, world.names[1])
    world.later(60, lambda: world.pool_image(NEW))
    world.later(3 * HOUR, lambda: administrators.release(world, world.names[0]))
    world.later(3 * HOUR, lambda: administrators.exclude(world, world.names[1], excluded=False))


def _bad(world: World) -> None:
    administrators.spoil(world, NEW, "checks fail")
    world.pool_image(NEW)


SCENARIOS: Final = (
    Scenario(name="an idle pool", begin=_idle),
    Scenario(
        name="as jobs end, in waves",
        begin=_as_jobs_end,
        fleet=fleet(max_parallel="100%", waves=(Wave(share=50, soak_seconds=600), Wave(share=75))),
    ),
    Scenario(name="as jobs of Slurm end", begin=_slurm, fleet=fleet(servers=3, slurm=True)),
    Scenario(
        name="stragglers on which jobs of Slurm still start",
        begin=_stragglers,
        fleet=fleet(
            servers=3, slurm=True, canary=Canary(count=0), stragglers=Stragglers(after_seconds=600, max_closed="100%")
        ),
    ),
    Scenario(
        name="one of each rack",
        begin=_idle,
        fleet=fleet(
            max_parallel=3,
            max_unavailable="50%",
            canary=Canary(count=2, soak_seconds=60),
            domains=(DomainCap(key="rack", max_unavailable=1),),
        ),
    ),
    Scenario(
        name="by a deadline",
        begin=_deadline,
        fleet=fleet(
            max_parallel="100%",
            canary=Canary(count=0),
            deadline=UpgradeDeadline(after_seconds=1800, minimum_run_seconds=1200),
        ),
    ),
    Scenario(name="undone half way", begin=_undone),
    Scenario(name="changed again half way", begin=_changed_again),
    Scenario(name="one is held, one excluded", begin=_left_alone),
    Scenario(name="a bad image", begin=_bad, fleet=fleet(max_failures=2)),
)
