"""`kubectl provision rollout plan`: what it says would happen is what the controller then does."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from provisioner.api import Image, NodePool
from provisioner.api.machinery.errors import Forbidden, Refused
from provisioner.api.machinery.meta import parse_time, rfc3339
from provisioner.api.nodes.contract import HOLD_REQUESTED
from provisioner.api.pools.pool_settings import (
    ExpectedGpus,
    ExpectedInventory,
    JobSettings,
    SlurmJobs,
    VerificationSettings,
)
from provisioner.api.pools.upgrade_strategy import Canary, UpgradeDeadline, UpgradeStrategy, Wave
from provisioner.cli.kubectl.failing import BadInput
from provisioner.cli.rollout import changes
from provisioner.cli.rollout.plan_screen import render_plan
from provisioner.cli.rollout.planning import Proposal, propose
from provisioner.cli.rollout.pool_view import read_view, with_image
from provisioner.cli.rollout.screen import render_rollout
from provisioner.cluster.resources import NODES
from provisioner.jobs.model.work import Job, Work
from tests.cli.rollout_situations import a_pool, a_server, a_view, an_image
from tests.cli.situations import NOON
from tests.golden_files import assert_golden
from tests.maintenance.chaos.fake_workloads import FakeJob
from tests.maintenance.chaos.world import NEW, STALE, World
from tests.rollout.chaos import administrators
from tests.rollout.test_reserved import begin as stragglers
from tests.rollout.test_rollout_of_a_fleet import HOUR, begin, status


def plan_of(world: World, image: str | None = None) -> Proposal:
    """As the command asks it of the API server, and of what runs."""
    view = read_view(world.cluster, world.cluster.read(NodePool, world.pool_name), world.clock.now)
    if image is not None:
        view = with_image(view, image, world.cluster.read(Image, image))
    workloads: Any = WithTimeLimits(world)
    return propose(view, workloads, world.clock.now)


class WithTimeLimits:
    """Jobs of a world whose ends are known."""

    def __init__(self, world: World) -> None:
        self._world = world

    def look(self, server: Any, pool: NodePool, *, fresh: bool = True) -> Work:
        work = self._world.workloads.look(server, pool, fresh=fresh)
        ends = {job.name: job.ends_at for job in self._world.workloads.jobs.values()}
        return replace(work, jobs=tuple(replace(job, ends=ends[job.name]) for job in work.jobs))


def test_the_order_and_the_end_are_those_in_which_the_fleet_then_moves() -> None:
    world = begin(servers=5, max_parallel=1, waves=(Wave(share=40, soak_seconds=900),))
    ends = {world.names[0]: 2 * HOUR, world.names[3]: 4 * HOUR}
    for name, seconds in ends.items():
        world.start_job(FakeJob(f"job-{name}", (name,), ends_at=world.clock.in_seconds(seconds)))
    planned = plan_of(world, world.images[NEW])
    foreseen = [move.name for move in planned.forecast.moves]
    stages = [(part.stage, part.servers) for part in planned.forecast.parts]
    assert stages == [("Canary", 1), ("Wave", 1), ("Rest", 3)]
    assert planned.forecast.completed is not None
    world.pool_image(NEW)
    moved: list[str] = []
    for _ in range(600):
        world.run(60)
        there = [name for name in world.names if world.machines[name].running_image == world.images[NEW]]
        moved += [name for name in there if name not in moved]
        if status(world).rollout.completed_time is not None:
            break
    assert moved == foreseen
    late = parse_time(status(world).rollout.completed_time) - planned.forecast.completed
    assert abs(late) < timedelta(minutes=30), "a server takes less here than it is said to"


def test_stragglers_that_slurm_fills_until_their_jobs_end_are_told_apart_from_those_that_take_no_job() -> None:
    found = plan_of(stragglers())
    told = " ".join(render_plan(found).split())
    assert "closed to jobs that may run longer than those that run there: s1, s2" in told
    assert "closed to new jobs" not in told


def test_asking_changes_nothing() -> None:
    world = begin()
    before = len(world.cluster.changes)
    plan_of(world, world.images[NEW])
    assert len(world.cluster.changes) == before
    assert status(world).rollout is None


def test_who_is_held_or_runs_a_job_without_an_end_is_told_to_stay() -> None:
    world = begin()
    held = {"type": HOLD_REQUESTED, "status": "True", "reason": "Person", "message": "mine"}
    patch = {"status": {"conditions": [{**held, "lastTransitionTime": rfc3339(world.clock.now)}]}}
    world.cluster.strategic_patch(NODES, world.names[0], patch, subresource="status", manager="kubectl")
    world.start_job(FakeJob("endless", (world.names[1],)))
    found = plan_of(world, world.images[NEW])
    assert [move.name for move in found.forecast.moves] == [world.names[2]]
    assert {name: wait.reason for name, wait in found.forecast.stays.items()} == {
        world.names[0]: "Held",
        world.names[1]: "Job",
    }
    told = " ".join(render_plan(found).split())
    assert "of some jobs nobody knows when they end" in told
    assert "runs Pod endless" in told


def test_what_a_complete_rollout_leaves_is_said_alike_by_condition_status_and_plan() -> None:
    world = begin(servers=2, slurm=False)
    administrators.exclude(world, world.names[1])
    world.pool_image(NEW)
    world.run(HOUR)
    found, said = plan_of(world), status(world)
    left = "1 excluded from rollouts (spec.upgrades) (s2)"
    progressing = next(c.message for c in said.conditions if c.type == "Progressing")
    for told in (progressing, said.rollout.message, render_rollout(found.view), render_plan(found)):
        assert f", but for {left}" in " ".join(told.split())
    wanted = world.images[STALE]
    begun = changes.begin(found.view, wanted, world.cluster.read(Image, wanted))
    assert begun.words[0].endswith(f"1 of 2 servers go there, as their jobs end; left alone: {left}")


def test_a_paused_pool_is_told_to_stay_and_by_name_what_it_would_do_when_begun() -> None:
    world = begin(paused=True, canary=Canary(count=0))
    assert len(plan_of(world, world.images[NEW]).forecast.moves) == 3
    world.pool_image(NEW)
    world.run(60)
    found = plan_of(world)
    assert found.forecast.moves == ()
    assert "nothing goes on: the rollout is paused" in render_plan(found)


def test_a_gang_that_a_deadline_ends_is_named_with_the_moment() -> None:
    world = begin(canary=Canary(count=0), deadline=UpgradeDeadline(after_seconds=7200))
    world.start_job(FakeJob("gang", tuple(world.names[:2]), kind="PodGroup"))
    found = plan_of(world, world.images[NEW])
    ended = [move for move in found.forecast.moves if move.ended]
    assert [move.name for move in ended] == world.names[:2]
    assert {round(move.begins - world.clock.now.timestamp()) for move in ended} == {7200}
    assert "PodGroup gang on" in render_plan(found)


class Seen:
    """What runs on each server, by name; the others: what asking of Slurm, and of pods, is answered with."""

    def __init__(self, works: dict[str, Work], refused: Exception | None, refused_pods: Exception | None) -> None:
        self._works = works
        self._refused = refused
        self._refused_pods = refused_pods

    def look(self, server: Any, pool: NodePool, *, fresh: bool = True) -> Work:
        if self._refused_pods is not None:
            raise self._refused_pods
        if pool.spec.jobs.slurm is not None and self._refused is not None:
            raise self._refused
        return self._works.get(server.name, Work())

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"who plans does not {name}")


def a_plan(
    works: dict[str, Work] | None = None,
    refused: Exception | None = None,
    refused_pods: Exception | None = None,
    **more: Any,
) -> Proposal:
    """Of six servers, none with the image."""
    verification = VerificationSettings(expected=ExpectedInventory(gpus=ExpectedGpus(count=8)))
    pool = replace(a_pool(None, verification=verification, **more))
    view = a_view(pool, [a_server(number) for number in range(1, 7)], wanted=an_image("gpu-node-2"))
    workloads: Any = Seen(works or {}, refused, refused_pods)
    return propose(view, workloads, NOON)


def running(name: str, hours: float | None, *servers: str) -> Work:
    ends = NOON + timedelta(hours=hours) if hours is not None else None
    return Work(jobs=(Job(kind="SlurmJob", name=name, servers=servers, message="runs", ends=ends),), free=0.0)


def test_golden_a_plan_is_told_on_one_screen() -> None:
    works = {
        "r01-u02": running("4711", 5, "r01-u02", "r01-u03"),
        "r01-u03": running("4711", 5, "r01-u02", "r01-u03"),
        "r01-u04": running("4712", None, "r01-u04"),
    }
    strategy = UpgradeStrategy(max_parallel=2, max_unavailable="50%", canary=Canary(count=1, soak_seconds=1800))
    assert_golden("cli/rollout-plan.txt", render_plan(a_plan(works, strategy=strategy)))


def test_the_cost_is_in_gpu_hours_where_the_pool_says_how_many_there_are() -> None:
    told = render_plan(a_plan(strategy=UpgradeStrategy(max_parallel=1)))
    assert "1.0 server-hours, 8.0 GPU-hours, at most 1 at once" in " ".join(told.split())


def test_what_runs_in_slurm_is_said_to_be_unknown_to_who_may_not_read_its_secret() -> None:
    jobs = JobSettings(slurm=SlurmJobs(url="http://slurm:6820", credentials_name="slurm"))
    refused = Forbidden('secrets "slurm" is forbidden: User "bob" cannot get', hint="ask an administrator")
    found = a_plan(refused=refused, jobs=jobs)
    assert found.forecast.moves == ()
    assert {wait.reason for wait in found.forecast.stays.values()} == {"Job"}
    told = " ".join(render_plan(found).split())
    assert "what runs in Slurm: secrets" in told
    assert "what runs there is not known" in told


def test_a_strategy_that_cannot_be_read_is_named_with_what_to_write() -> None:
    with pytest.raises(BadInput, match=r"spec\.upgradeStrategy of NodePool gpu cannot be read"):
        a_plan(strategy=UpgradeStrategy(canary=Canary(selector="=nonsense=")))


def test_who_may_not_see_the_pods_is_told_so_and_not_that_servers_are_idle() -> None:
    with pytest.raises(Refused):
        a_plan(refused_pods=Forbidden("pods is forbidden", hint="ask an administrator"))
