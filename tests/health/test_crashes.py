"""Each write of the controller goes wrong in turn, and it comes out the same.

Its process ends after the write and another one goes on; or the API server answers 409 or 503 in place of the write.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provisioner.api.machinery.errors import Conflict, Retryable
from provisioner.api.nodes.contract import (
    HOLD_REQUESTED,
    HOLD_TAINT,
    VERIFICATION_RELEASE_REQUESTED,
    VERIFICATION_RETRY_REQUESTED,
    VERIFICATION_TAINT,
)
from provisioner.api.pools.pool_settings import JobCheck
from provisioner.cluster.client import Cluster
from tests.health.objects import BOOT, OTHER_BOOT, job_check
from tests.health.world import FOREIGN_TAINT, Crash, FailingCluster, World, follow_all, make_world

MOST_WRITES = 40

Story = Callable[[World, "Restarted"], None]


class Restarted:
    """A controller with which something goes wrong once; if its process ends, it is started again at once."""

    def __init__(self, world: World, writes: int, fault: BaseException) -> None:
        self._world = world
        self.door = FailingCluster(world.door, writes, fault)
        self._reconcile = world.controller(self.door)

    def __call__(self, name: str) -> float | None:
        try:
            return self._reconcile(name)
        except Crash:
            self._reconcile = self._world.controller()
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


@pytest.mark.parametrize(
    "fault", [Crash(), Conflict("409"), Retryable("503", after_seconds=0.0)], ids=["crash", "409", "503"]
)
@pytest.mark.parametrize(
    ("story", "checks"),
    [(a_failed_check_a_retry_with_a_job_and_a_hold, (job_check(),)), (a_release_and_another_boot, ())],
    ids=["retry", "release"],
)
def test_whatever_happens_to_one_write_the_outcome_is_the_same(
    cluster: Cluster,
    controller_account: Cluster,
    unique: str,
    story: Story,
    checks: tuple[JobCheck, ...],
    fault: BaseException,
) -> None:
    with follow_all(controller_account) as informers:
        for writes in range(MOST_WRITES):
            name = f"{unique}-{writes}"
            with make_world(cluster, controller_account, name, *checks, informers=informers) as world:
                reconcile = Restarted(world, writes, fault)
                story(world, reconcile)
                if not reconcile.door.failed:
                    assert writes > 4, "the story has more writes than that"
                    return
    raise AssertionError(f"the story takes more than {MOST_WRITES} writes")
