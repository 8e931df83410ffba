"""A slurmrestd whose answers are costly, or of the wrong shape: it costs its own pool, and fails as one that hangs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.jobs.slurm.answers import SlurmFailed, choose_dialect, read_answer, read_offer
from provisioner.jobs.slurm.objects import KEPT_BYTES, MAX_PLACES, MAX_UNREADABLE, Bounds, read_job, read_node
from provisioner.jobs.slurm.rest import _reader
from provisioner.outbound.turns import Turn
from tests.jobs.fake_slurmrestd import FakeSlurmrestds
from tests.jobs.test_slurm_looks import NAMES, PATH, Desk

WIDE = [{"job_id": n, "job_state": ["RUNNING"], "nodes": f"p{n}[0-65534]"} for n in range(30)]
UNREADABLE = [{"job_id": n, "job_state": ["RUNNING"], "nodes": "r["} for n in range(MAX_UNREADABLE + 1)]
WRONG = [
    *({"nodes": [[]]}, {"nodes": {"a": 1}}, {"nodes": "abc"}, {"nodes": None}, {"errors": 5}, {"errors": [1]}, [], 5),
    *({"paths": [1]}, {"paths": {"/slurm/v0.0.42/node/{node_name}": None}}, {"jobs": [0], "nodes": [0]}),
    {"nodes": [], "errors": [{"error_number": []}]},
]


@pytest.fixture
def slurm() -> Iterator[FakeSlurmrestds]:
    made = FakeSlurmrestds({PATH: NAMES})
    yield made
    made.close()


@pytest.mark.parametrize(("jobs", "words"), [(WIDE, f"more than {MAX_PLACES} hosts"), (UNREADABLE, "not readable")])
def test_jobs_that_would_take_much_memory_are_no_answer(
    slurm: FakeSlurmrestds, jobs: list[dict[str, Any]], words: str
) -> None:
    desk = Desk(slurm)
    assert desk.look().unknown == ()
    slurm.says[PATH] = (200, json.dumps({"jobs": jobs, "nodes": []}).encode())
    desk.seconds += 600
    (said,) = desk.look().unknown
    assert "answered what cannot be read (GET jobs" in said
    assert words in said


def test_no_more_is_kept_of_an_answer_than_its_bound() -> None:
    bounds, job = Bounds(), read_job({"job_id": 7, "name": "x" * 1_000_000})
    for _ in range(KEPT_BYTES // 1_002_000):
        bounds.job(job)
    with pytest.raises(ValueError, match=f"to be kept of it takes more than {KEPT_BYTES} bytes"):
        bounds.job(job)


def test_wide_jobs_of_an_honest_slurm_are_seen_on_each_of_its_nodes(slurm: FakeSlurmrestds) -> None:
    slurm.jobs[PATH] = [{"job_id": n, "job_state": ["RUNNING"], "nodes": "r[000-9999]"} for n in range(3)]
    desk = Desk(slurm)
    for name in (NAMES[0], NAMES[-1]):
        assert [job.name for job in desk.look(name).jobs] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, b""), (502, b"<html>"), (200, b"{}"), (200, b'{"nodes":[' + b"[]," * 10), (200, b'{"errors":[{}]}')]
    + [(200, json.dumps(each).encode()) for each in WRONG],
)
def test_a_wrong_answer_counts_as_none_and_an_honest_one_ends_that(
    slurm: FakeSlurmrestds, status: int, body: bytes
) -> None:
    desk = Desk(slurm)
    desk.look()
    slurm.says[PATH] = (status, body)
    for _ in range(3):
        desk.seconds += 60
        assert desk.look(fresh=True).unknown
    assert desk.workloads.failure(desk.pool) is not None
    slurm.says.clear()
    desk.seconds += 60
    assert desk.look(fresh=True).state == "IDLE"
    assert desk.workloads.failure(desk.pool) is None


@pytest.mark.parametrize("body", [b"", b'{"errors":[{"error_number":2002}]}'])
def test_a_refused_token_says_that_slurm_answers(slurm: FakeSlurmrestds, body: bytes) -> None:
    desk = Desk(slurm)
    desk.look()
    slurm.says[PATH] = (401, body)
    for _ in range(5):
        desk.seconds += 60
        assert "put a token" in desk.look(fresh=True).unknown[0]
    assert desk.workloads.failure(desk.pool) is None


HONEST: dict[str, Any] = {
    "nodes": [{"name": "r1", "state": ["IDLE"], "reason": ""}],
    "jobs": [{"job_id": {"set": True, "number": 7}, "job_state": ["RUNNING"], "nodes": "r[1-2]", "array_job_id": 3}],
    "paths": {
        "/slurm/v0.0.42/node/{node_name}": {"get": {}, "post": {}},
        "/slurm/v0.0.42/job/{job_id}": {"delete": {"parameters": [{"schema": {"enum": ["FULL_STEPS_ONLY"]}}]}},
    },
    "errors": [],
}
ANYTHING: Any = st.recursive(
    st.sampled_from([None, True, 0, -1, 1e999, "", "r[", "7", 10**30]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["set", "number", ""]), inner),
    max_leaves=4,
)


def places(value: Any) -> list[Callable[[Any], Any]]:
    """For each part of `value`: what puts another one in its place."""
    found: list[Callable[[Any], Any]] = [lambda other: other]
    if isinstance(value, dict):
        found += [
            lambda other, name=name, put=put: value | {name: put(other)}
            for name, inner in value.items()
            for put in places(inner)
        ]
    elif isinstance(value, list):
        found += [
            lambda other, at=at, put=put: [*value[:at], put(other), *value[at + 1 :]]
            for at, inner in enumerate(value)
            for put in places(inner)
        ]
    return found


@given(put=st.sampled_from(places(HONEST)), other=ANYTHING, status=st.sampled_from([200, 500]))
@settings(max_examples=100)
def test_whatever_stands_in_an_answer_it_is_one_or_none(put: Callable[[Any], Any], other: Any, status: int) -> None:
    readers: dict[str, Callable[..., Any]] = {
        "nodes": _reader(read_node, Bounds().node),
        "jobs": _reader(read_job, Bounds().job),
        "paths": read_offer,
    }
    for key, keep in readers.items():
        try:
            answer = read_answer(status, [json.dumps(put(other)).encode()], key, keep, Turn())
        except ValueError as error:
            assert status == 200, error  # noqa: PT017 - what says of itself that it failed is an answer, whatever it is
            continue
        assert answer.words
        assert not answer.says_unknown, "none of them names the error by which a node is unknown"
        if key == "paths" and answer.found is not None:
            with suppress(SlurmFailed):
                choose_dialect(answer.found, "http://slurm")


def test_an_honest_answer_is_read() -> None:
    body = [json.dumps(HONEST).encode()]
    (job,) = read_answer(200, body, "jobs", _reader(read_job, Bounds().job), Turn()).found or ()
    assert job.is_placed_on("r2")
    dialect = choose_dialect(read_answer(200, body, "paths", read_offer, Turn()).found or (), "http://slurm")
    assert (dialect.version, dialect.updates_nodes, dialect.signals_steps) == ("v0.0.42", True, True)
