"""A pool on its way to another image, in situations that an operator meets, as the API server would tell of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from provisioner.api import Image, Maintenance, NodePool, ObjectMeta, Server
from provisioner.api.machinery.codec import decode, encode
from provisioner.api.machinery.meta import rfc3339
from provisioner.api.nodes.maintenance import MaintenanceSpec
from provisioner.api.pools.node_pool import NodePoolSpec, NodePoolStatus
from provisioner.api.pools.rollout_status import RolloutBlocker, RolloutStatus, RolloutStop, WaitCount
from provisioner.api.pools.upgrade_strategy import Canary, UpgradeStrategy
from provisioner.api.servers.server_status import UpgradeFailure
from provisioner.cli.rollout.pool_view import PoolView, make_view
from provisioner.rollout.borrowed import lending_of
from tests.api.objects import image
from tests.cli.situations import NOON, before, blocker, condition, maintenance, requestor, server

OLD, NEW = "gpu-node-1", "gpu-node-2"
DIGESTS = {OLD: "sha256:" + "ab" * 32, NEW: "sha256:" + "cd" * 32}
STRATEGY = UpgradeStrategy(max_parallel=2, canary=Canary(count=1, soak_seconds=600))


def an_image(name: str = NEW, **changes: Any) -> Image:
    return decode(Image, image(name, digest=DIGESTS.get(name, "sha256:" + "ef" * 32), **changes))


def a_server(number: int, runs: str = OLD, **status: Any) -> Server:
    name = f"r{(number - 1) // 4 + 1:02d}-u{(number - 1) % 4 + 1:02d}"
    made = server(**{"node_ref": name, "image_ref": runs, "image_digest": DIGESTS[runs], **status})
    spec = replace(made.spec, rack_ref=name[:3], boot_mac_address=f"52:54:00:80:01:{number:02x}")
    return replace(made, metadata=ObjectMeta(name=name, uid=f"uid-{number}"), spec=spec)


def a_node(of: Server, *, held: bool = False) -> dict[str, Any]:
    conditions = [{"type": "provisioner.dev/HoldRequested", "status": "True"}] if held else []
    return {
        "metadata": {"name": of.name},
        "status": {"nodeInfo": {"bootID": "boot-7"}, "conditions": conditions},
    }


def a_request(of: Server, turn: str, *, phase: Any = "Waiting", number: int = 1, **status: Any) -> Maintenance:
    """The rollout's, in a Maintenance of its own."""
    words = f"waits for its turn in the rollout of Image '{NEW}' in NodePool 'gpu'"
    asked = requestor(name="rollout", user="provisioner-rollout", turn=turn, image_ref=NEW, message=words)
    made = maintenance(asked, **{"phase": phase, "image_ref": NEW, **status})
    metadata = replace(made.metadata, name=f"{of.name}-{number}")
    return replace(made, metadata=metadata, spec=MaintenanceSpec(server_ref=of.name, requestors=(asked,)))


def out_of_use(reason: str, message: str) -> tuple[Any, ...]:
    return condition("Ready", "True", "Ready"), condition("Verified", "False", reason, message, hours=1)


def a_pool(rollout: RolloutStatus | None, *, wants: str = NEW, generation: int = 2, **more: Any) -> NodePool:
    strategy, history = more.pop("strategy", STRATEGY), more.pop("history", ())
    progressing = replace(
        condition("Progressing", "True", "Rest"), observed_generation=more.pop("observed", generation)
    )
    return NodePool(
        metadata=ObjectMeta(name="gpu", generation=generation),
        spec=NodePoolSpec(image_ref=wants, upgrade_strategy=strategy, **more),
        status=NodePoolStatus(
            desired=8, updated=3, updating=1, waiting=2, left_alone=1, failed=0, unavailable=1,
            rollout=rollout, history=history, conditions=(progressing,),
        ),
    )  # fmt: skip


def a_rollout(**changes: Any) -> RolloutStatus:
    known: dict[str, Any] = {
        "image_ref": NEW,
        "previous_image_ref": OLD,
        "started_time": before(hours=2, minutes=5),
        "stage": "Rest",
        "passed": 1,
        "message": "all servers may follow; 2 servers wait for their jobs",
        "expected_time": rfc3339(NOON + timedelta(hours=6)),
        "waits": (WaitCount(reason="Held", count=1), WaitCount(reason="Job", count=2)),
        "blockers": (
            RolloutBlocker(job="SlurmJob 4711", servers=2, expected_time=rfc3339(NOON + timedelta(hours=5))),
            RolloutBlocker(job="PodGroup ml/train", servers=1),
        ),
    }
    return RolloutStatus(**(known | changes))


def a_view(
    pool: NodePool,
    servers: list[Server],
    *maintenances: Maintenance,
    held: tuple[str, ...] = (),
    wanted: Image | None = None,
) -> PoolView:
    nodes = {each.name: a_node(each, held=each.name in held) for each in servers}
    bodies = [encode(each) for each in servers]
    return make_view(
        pool, wanted or an_image(pool.spec.image_ref), bodies, nodes, maintenances, lending_of([], NOON), NOON
    )


def eight() -> list[Server]:
    """Three run the new image, four the old one, one is out of use."""
    servers = [a_server(number, NEW if number <= 3 else OLD) for number in range(1, 8)]
    broken = a_server(8, conditions=(condition("Ready", "False", "NodeNotReady", "its kubelet is silent", hours=3),))
    return [*servers, broken]


def half_way() -> PoolView:
    servers = eight()
    job = blocker("SlurmJob", "4711", "Slurm job 4711 of alice runs until 17:00", hours=2)
    gang = blocker("PodGroup", "ml/train", "is a job of 2 servers", hours=2)
    turn = blocker("Rollout", "rollout", "takes no new job: it is its turn when those that run have ended", hours=2)
    return a_view(
        a_pool(a_rollout()),
        servers,
        a_request(servers[3], "Granted", phase="Rebooting"),
        a_request(servers[4], "Closed", blockers=(job, turn)),
        a_request(servers[5], "Closed", blockers=(gang, turn)),
        held=(servers[6].name,),
    )


def at_the_canary() -> PoolView:
    rollout = a_rollout(
        stage="Canary", passed=0, message="canary: 0 of 1 server in use with the new image", expected_time=None,
        waits=(WaitCount(reason="Canary", count=7),), blockers=(),
    )  # fmt: skip
    servers = [a_server(number) for number in range(1, 9)]
    return a_view(a_pool(rollout), servers, a_request(servers[0], "Granted", phase="Verifying"))


def failed_server() -> Server:
    failure = UpgradeFailure(
        image_ref=NEW, time=before(hours=1), maintenance_ref="r01-u01-1", message="ChecksFailed: GPUs: 7 of 8"
    )
    return a_server(1, NEW, upgrade_failure=failure, conditions=out_of_use("GPUs", "7 of 8 GPUs"))


def stopped() -> PoolView:
    words = "1 server failed with Image 'gpu-node-2', and spec.upgradeStrategy.maxFailures of NodePool 'gpu' is 1"
    rollout = a_rollout(
        stage="Canary", passed=0, message=f"stopped: {words}", expected_time=None, blockers=(),
        waits=(WaitCount(reason="Failed", count=1), WaitCount(reason="Halted", count=7)),
        stopped=RolloutStop(time=before(hours=1), reason="Failures", message=words),
    )  # fmt: skip
    return a_view(a_pool(rollout), [failed_server(), *(a_server(number) for number in range(2, 9))])


def paused() -> PoolView:
    rollout = a_rollout(
        message="the rollout is paused (spec.upgradeStrategy.paused)", expected_time=None, blockers=(),
        waits=(WaitCount(reason="Paused", count=4),),
    )  # fmt: skip
    return a_view(a_pool(rollout, strategy=replace(STRATEGY, paused=True)), eight())


def complete() -> PoolView:
    rollout = a_rollout(
        message=f"complete since {before(minutes=20)}", completed_time=before(minutes=20), expected_time=None,
        waits=(), blockers=(),
    )  # fmt: skip
    return a_view(a_pool(rollout), [a_server(number, NEW) for number in range(1, 9)])


def complete_but_for_some() -> PoolView:
    """One is held, one out of use."""
    left = (WaitCount(reason="Held", count=1), WaitCount(reason="Down", count=1))
    words = f"complete since {before(minutes=20)}, but for 1 out of use (r02-u04), 1 held by a person (r02-u03)"
    rollout = a_rollout(
        message=words, completed_time=before(minutes=20), expected_time=None, waits=left, blockers=(),
    )  # fmt: skip
    servers = [a_server(number, NEW if number < 7 else OLD) for number in range(1, 8)]
    return a_view(a_pool(rollout), [*servers, eight()[7]], held=("r02-u03",))


def not_taken_up() -> PoolView:
    return a_view(a_pool(None, generation=3, observed=2), [a_server(number) for number in range(1, 4)])


def large() -> PoolView:
    return a_view(a_pool(a_rollout()), [a_server(number, NEW if number <= 100 else OLD) for number in range(1, 201)])


SITUATIONS: Mapping[str, Callable[[], PoolView]] = {
    "half-way": half_way,
    "canary": at_the_canary,
    "stopped": stopped,
    "paused": paused,
    "complete": complete,
    "complete-but-for-some": complete_but_for_some,
    "not-taken-up": not_taken_up,
}
