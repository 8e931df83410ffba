"""What goes wrong with a rollout, beside the crash of its leader: each at one effect, some of it for hours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from provisioner.api.nodes.contract import POWER_CYCLE_REQUESTED, REBOOT_REQUESTED, REIMAGE_REQUESTED
from tests.maintenance.chaos import people
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.injections import INJECTIONS, Injection
from tests.maintenance.chaos.world import NEW, OLD, STALE, World
from tests.rollout.chaos import administrators

HOUR: Final = 3600.0
AWAY_SECONDS: Final = 600.0
SHORT: Final = 900.0

_OF_ONE_SERVER: Final = ("nothing else", "409", "503", "lost answer", "lost watch", "two leaders")


def _api_away(world: World) -> None:
    world.api_goes(AWAY_SECONDS)


def _bad(*habits: Any) -> Callable[[World], None]:
    return lambda world: administrators.spoil(world, NEW, *habits)


def _flaps_for_hours(world: World) -> None:
    administrators.spoil(world, NEW, "kubelet flaps")
    world.later(6 * HOUR, lambda: administrators.spoil(world, NEW))


def _rack_lost(world: World) -> None:
    names = world.names[: len(world.names) // 2]
    administrators.power_fails(world, *names)
    world.later(HOUR, lambda: administrators.power_returns(world, *names))


def _power_cut(world: World) -> None:
    administrators.cut_power(world, world.names[0])


def _endless_jobs(world: World) -> None:
    """Until somebody ends them."""
    for number, name in enumerate(world.names):
        job = FakeJob(f"endless-{number}", (name,), ends_at=world.clock.in_seconds(5 * HOUR), do_not_disrupt=True)
        world.start_job(job)


def _clock_jumps(seconds: float) -> Callable[[World], None]:
    """For a quarter of an hour; then it is right again."""

    def strike(world: World) -> None:
        for replica in world.replicas:
            world.clock_jumps(replica, seconds)
            world.later(SHORT, lambda replica=replica: world.clock_jumps(replica, 0.0))  # type: ignore[misc]

    return strike


def _image_deleted(world: World) -> None:
    world.image_is_deleted(NEW)
    world.later(HOUR, lambda: world.publish(NEW))


def _image_deleted_for_good(world: World) -> None:
    """Whoever wanted it goes back."""
    world.image_is_deleted(NEW)
    world.later(HOUR, lambda: world.pool_image(OLD))


def _paused(world: World) -> None:
    administrators.set_strategy(world, paused=True)
    world.later(HOUR, lambda: administrators.set_strategy(world, paused=False))


def _no_budget(world: World) -> None:
    administrators.set_strategy(world, maxParallel=0)
    world.later(HOUR, lambda: administrators.set_strategy(world, maxParallel=2))


def _undone(world: World) -> None:
    world.pool_image(OLD)


def _undone_and_done(world: World) -> None:
    world.pool_image(OLD)
    world.later(200, lambda: world.pool_image(NEW))


def _another_image(world: World) -> None:
    world.pool_image(STALE)


def _held(world: World) -> None:
    for name in world.names[:2]:
        administrators.hold(world, name)
        world.later(HOUR, lambda name=name: administrators.release(world, name))  # type: ignore[misc]


def _excluded(world: World) -> None:
    administrators.exclude(world, world.names[0])


def _asked(type_: str, policy: str, message: str = "") -> Callable[[World], None]:
    def strike(world: World) -> None:
        for name in (world.names[0], world.names[-1]):
            people.ask(world, name, type_, policy, message.format(new=world.images[NEW]))

    return strike


def _maintenances_are_seen_late(world: World) -> None:
    """Jobs start meanwhile, wherever they may."""
    for replica in world.replicas:
        replica.freeze(60, "maintenances")
    for number, name in enumerate(world.names):
        world.start_job(FakeJob(f"short-{number}", (name,), ends_at=world.clock.in_seconds(20)))


def _maintenances_deleted(world: World) -> None:
    world.decisions += 1
    people.delete_maintenances(world)


def _node_deleted(world: World) -> None:
    world.decisions += 1
    people.delete_node(world, world.names[0])


def _button(world: World) -> None:
    """Somebody presses the power button of every server that nobody works on."""
    for name in world.names:
        machine = world.machines[name]
        if machine.state == "Running":
            machine.go_down(None)
            machine.boot(world.hosts[name].firmware_image(), 300, "somebody pressed its button")


TROUBLES: Final = (
    *(injection for injection in INJECTIONS if injection.name in _OF_ONE_SERVER),
    Injection(name="the API server is away", strike=_api_away),
    Injection(name="the image does not boot", strike=_bad("never returns")),
    Injection(name="the image fails its checks", strike=_bad("checks fail")),
    Injection(name="the image flaps", strike=_flaps_for_hours),
    Injection(name="its kubelet dies after an hour", strike=_bad("kubelet dies")),
    Injection(name="Maintenances are seen late", strike=_maintenances_are_seen_late),
    Injection(name="a rack is lost", strike=_rack_lost),
    Injection(name="a power cut", strike=_power_cut),
    Injection(name="jobs that never end", strike=_endless_jobs),
    Injection(name="the clock jumps ahead", strike=_clock_jumps(2 * HOUR)),
    Injection(name="the clock jumps back", strike=_clock_jumps(-2 * HOUR)),
    Injection(name="the image is deleted for an hour", strike=_image_deleted),
    Injection(name="the image is deleted for good", strike=_image_deleted_for_good),
    Injection(name="paused for an hour", strike=_paused),
    Injection(name="no server at a time for an hour", strike=_no_budget),
    Injection(name="undone", strike=_undone),
    Injection(name="undone, and done again", strike=_undone_and_done),
    Injection(name="another image", strike=_another_image),
    Injection(name="held for an hour", strike=_held),
    Injection(name="excluded", strike=_excluded),
    Injection(name="a reboot is asked for", strike=_asked(REBOOT_REQUESTED, "WhenIdle", "please")),
    Injection(name="a power cycle now", strike=_asked(POWER_CYCLE_REQUESTED, "Now", "it hangs")),
    Injection(name="the image is asked for by hand", strike=_asked(REIMAGE_REQUESTED, "WhenIdle", "image={new}")),
    Injection(name="cordoned by an administrator", strike=lambda world: people.cordon(world, world.names[0])),
    Injection(name="Maintenances are deleted", strike=_maintenances_deleted),
    Injection(name="a Node is deleted", strike=_node_deleted),
    Injection(name="all are rebooted behind our back", strike=_button),
)
