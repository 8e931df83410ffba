"""The scheduler of the simulated cluster."""

from __future__ import annotations

import itertools
import random

import pytest

from provisioner.rollout.simulate.cluster import CLOSED, OPEN, STEERED, SimulatedCluster
from provisioner.rollout.simulate.trace import TraceJob


def cluster(servers: int, *gpus: int, duration: float = 100.0) -> SimulatedCluster:
    """With 8 GPUs each; every job is queued."""
    made = SimulatedCluster(servers, 8, [TraceJob(float(number), duration, count) for number, count in enumerate(gpus)])
    for number in range(len(gpus)):
        made.submit(number)
    return made


def test_a_job_runs_on_the_fullest_server_that_it_fits() -> None:
    made = cluster(2, 6, 2, 4)
    assert [run.servers for run in made.schedule(0.0)] == [(0,), (0,), (1,)]
    assert made.free == [0, 4]


def test_chance_decides_between_equally_full_servers_alone() -> None:
    made = cluster(4, 6, 6, 6, 4, 2)
    made.schedule(0.0)
    made.ties = random.Random(1)
    taken = []
    for _ in range(20):
        made.end(4)
        made.submit(4)
        taken += [run.servers[0] for run in made.schedule(1.0)]
    assert set(taken) == {0, 1, 2}
    assert any(one == following for one, following in itertools.pairwise(taken)), "they do not take turns"


def test_a_wide_job_gets_whole_servers_all_of_them_or_none() -> None:
    made = cluster(3, 1, 24)
    assert [run.number for run in made.schedule(0.0)] == [0]
    made.end(0)
    assert [sorted(run.servers) for run in made.schedule(1.0)] == [[0, 1, 2]]
    assert made.free == [0, 0, 0]


def test_who_fits_goes_ahead_of_who_does_not_and_the_first_one_first() -> None:
    made = cluster(1, 8, 8, 2, 2)
    assert [run.number for run in made.schedule(0.0)] == [0]
    made.end(0)
    assert [run.number for run in made.schedule(1.0)] == [1]
    made.end(1)
    assert [run.number for run in made.schedule(2.0)] == [2, 3]


def test_a_server_that_is_steered_away_from_is_taken_last_and_a_closed_one_never() -> None:
    made = cluster(3, 8, 8, 8)
    made.set_openness(0, CLOSED)
    made.set_openness(1, STEERED)
    assert [run.servers for run in made.schedule(0.0)] == [(2,), (1,)]
    made.set_openness(0, OPEN)
    assert [run.servers for run in made.schedule(1.0)] == [(0,)]


def test_a_job_that_was_interrupted_comes_first_among_those_of_its_size() -> None:
    made = cluster(1, 8, 8)
    made.schedule(0.0)
    made.end(0)
    made.submit(0, first=True)
    assert [run.number for run in made.schedule(1.0)] == [0]


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_and_goes_no_gpu_is_used_twice(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice((1, 1, 2, 4, 8, 16, 24)) for _ in range(400)]
    made = cluster(6, *sizes)
    for step in range(600):
        made.schedule(float(step))
        for server in range(6):
            held = sum(run.per_server for run in made.on[server].values())
            assert held + made.free[server] == 8
            assert made.free[server] >= 0
        for run in made.runs.values():
            assert run.per_server * len(run.servers) == sizes[run.number]
        made.set_openness(chance.randrange(6), chance.choice((OPEN, STEERED, CLOSED)))
        if made.runs:
            made.end(chance.choice(list(made.runs)))
    for server in range(6):
        made.set_openness(server, OPEN)
    while made.runs or made.schedule(1e6):
        made.end(next(iter(made.runs)))
    assert not any(made.queued.values())
    assert made.queued_gpus == 0
    assert made.free == [8] * 6
