"""The controller's process ends after each of its writes in turn; another one goes on, and it comes out the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from provisioner.api.node_contract import (
    HOLD_REQUESTED,
    HOLD_TAINT,
    VERIFICATION_RELEASE_REQUESTED,
    VERIFICATION_RETRY_REQUESTED,
    VERIFICATION_TAINT,
)
from provisioner.cluster.client import Cluster
from tests.health.objects import BOOT, OTHER_BOOT, job_check
from tests.health.world import FOREIGN_TAINT, Crash, CrashingCluster, World, make_world

MOST_WRITES = 40


@dataclass
class Restarted:
    """A controller whose process ends after so many writes, and is started again at once."""

    world: World
    writes: int
    crashed: int = 0
    reconcile: Callable[[str], float | None] = field(init=False)

    def __post_init__(self) -> None:
        self.reconcile = self.world.controller(CrashingCluster(self.world.cluster, self.writes))

    def __call__(self, name: str) -> float | None:
        try:
            return self.reconcile(name)
        except Crash:
            self.crashed += 1
            self.reconcile = self.world.controller()
            return None


def keys(world: World) -> set[str]:
    return {taint["key"] for taint in world.taints()}


def a_failed_check_a_retry_with_a_job_and_a_hold(world: World, reconcile: Restarted) -> None:
    world.boot(facts=world.facts(cpus=127))
    world.settle(reconcile, lambda: world.verified() == ("False", "Processors"))
    assert VERIFICATION_TAINT in keys(world)
    world.report(BOOT)
    world.ask(VERIFICATION_RETRY_REQUESTED)
    world.settle(reconcile, lambda: len(world.jobs()) == 1)
    assert VERIFICATION_TAINT in keys(world)
    world.finish_pod(world.jobs()[0]["metadata"]["name"], "provisioner-checks", code=0)
    world.settle(reconcile, lambda: world.taints() == [FOREIGN_TAINT])
    world.settle(reconcile, lambda: world.condition(VERIFICATION_RETRY_REQUESTED) == [("False", "Passed")])
    verification = world.server().status.verification
    assert verification is not None
    assert verification.attempt == 2, "one retry is one round"
    assert len(world.jobs()) == 1, "one round is one Job"
    world.ask(HOLD_REQUESTED)
    world.settle(reconcile, lambda: keys(world) == {FOREIGN_TAINT["key"], HOLD_TAINT})
    world.ask(HOLD_REQUESTED, "False")
    world.settle(reconcile, lambda: world.taints() == [FOREIGN_TAINT])
    assert world.verified() == ("True", "Passed")


def a_release_and_another_boot(world: World, reconcile: Restarted) -> None:
    world.boot(facts=world.facts(cpus=127))
    world.settle(reconcile, lambda: world.verified() == ("False", "Processors"))
    world.ask(VERIFICATION_RELEASE_REQUESTED)
    world.settle(reconcile, lambda: world.taints() == [FOREIGN_TAINT])
    world.settle(reconcile, lambda: world.condition(VERIFICATION_RELEASE_REQUESTED) == [("False", "Released")])
    world.boot("order-2", OTHER_BOOT, facts=world.facts(cpus=127))
    world.settle(reconcile, lambda: world.verified() == ("False", "Processors"))
    assert VERIFICATION_TAINT in keys(world), "a release is for one boot"


def test_a_crash_after_any_write_changes_nothing_of_the_outcome(cluster: Cluster, unique: str) -> None:
    for story, checks in (
        (a_failed_check_a_retry_with_a_job_and_a_hold, (job_check(),)),
        (a_release_and_another_boot, ()),
    ):
        for writes in range(MOST_WRITES):
            with make_world(cluster, f"{unique}-{len(checks)}-{writes}", *checks) as world:
                reconcile = Restarted(world, writes)
                story(world, reconcile)
                if reconcile.crashed == 0:
                    assert writes > 4, "the story has more writes than that"
                    break
        else:
            raise AssertionError(f"{story.__name__} takes more than {MOST_WRITES} writes")
