"""A hundred slurmrestds that hang or drip: they hold their own pools, and nobody else's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from provisioner.jobs.slurm import looks, rest
from tests.jobs.fake_slurmrestd import FakeSlurmrestds
from tests.maintenance.live_executor import LiveExecutor

pytestmark = pytest.mark.slow

COUNT = 100
HANGING = [f"slurm-{number:03}" for number in range(COUNT)]
OTHERS = ["plain", "healthy"]
"""One pool without Slurm, one whose slurmrestd answers."""


@pytest.fixture
def slurm() -> Iterator[FakeSlurmrestds]:
    made = FakeSlurmrestds({f"/{name}": [name] for name in (*HANGING, *OTHERS)})
    yield made
    made.close()


@pytest.fixture
def executor(slurm: FakeSlurmrestds, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveExecutor]:
    # Longer than the test: whoever waits for one of them waits to its end.
    monkeypatch.setattr(rest, "CALL_SECONDS", 3600.0)
    monkeypatch.setattr(rest, "SILENCE_SECONDS", 3600.0)
    urls = {name: slurm.url(f"/{name}") for name in (*HANGING, "healthy")}
    made = LiveExecutor({**urls, "plain": None})
    yield made
    slurm.let_go()
    made.close()


@pytest.mark.parametrize("how", ["hangs", "drips"])
def test_a_hundred_slurmrestds_that_never_answer_block_no_worker(
    slurm: FakeSlurmrestds, executor: LiveExecutor, how: str
) -> None:
    getattr(slurm, how).update(f"/{name}" for name in HANGING)
    for name in HANGING:
        executor.ask_to_drain(name)
    executor.wait_until(lambda: executor.calls_under_way() == COUNT, "all of them are being asked")
    assert executor.blocked_workers() == []
    for name in OTHERS:
        executor.ask_to_drain(name)
        executor.wait_until(lambda name=name: executor.phase(name) == "Drained", f"{name} is drained")
        assert executor.blocked_workers() == []
    assert executor.calls_under_way() == COUNT, "they still hang"
    assert {executor.phase(name) for name in HANGING} <= {None, "Waiting"}


def test_a_slurmrestd_that_answers_has_its_pool_drained(slurm: FakeSlurmrestds, executor: LiveExecutor) -> None:
    asked = HANGING[:10]
    for name in asked:
        executor.ask_to_drain(name)
    executor.wait_until(lambda: {executor.phase(name) for name in asked} == {"Drained"}, "all are drained")
    assert {slurm.nodes[f"/{name}"][name][0][-1] for name in asked} == {"DRAIN"}


def test_a_slurmrestd_that_fails_is_told_in_blockers_and_once_in_an_event(
    slurm: FakeSlurmrestds, executor: LiveExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told() -> list[tuple[str, str, str]]:
        return [(each.name, each.type, each.reason) for each in executor.events.told if each.kind == "NodePool"]

    def comes_to(done: Callable[[], bool], why: str) -> None:
        executor.wait_until(lambda: (executor.look_again("slurm-000"), done())[1], why)

    monkeypatch.setattr(rest, "CALL_SECONDS", 0.3)
    monkeypatch.setattr(looks, "FAILED_SECONDS", 0.1)
    slurm.drips.add("/slurm-000")
    executor.ask_to_drain("slurm-000")
    comes_to(lambda: "so since" in executor.blockers("slurm-000").get("Slurm", ""), "the breaker is open")
    assert "no whole answer within 0.3 s" in executor.blockers("slurm-000")["Slurm"]
    comes_to(lambda: bool(told()), "the pool is told of")
    assert told() == [("slurm-000", "Warning", "SlurmUnreachable")]
    monkeypatch.setattr(rest, "CALL_SECONDS", 60.0)
    slurm.drips.clear()
    comes_to(lambda: executor.phase("slurm-000") == "Drained", "it answers, and is drained")
    assert told()[1:] == [("slurm-000", "Normal", "SlurmReachable")]
