"""Traces of jobs as operators have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.rollout.simulate.trace import TraceJob, mean_gpus, read_trace, scale_trace


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_jobs_are_read_in_the_order_in_which_they_were_submitted(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "timestamp,duration,num_gpus,user\n2017-10-09 07:01:55,66.0,1,a\n2017-10-09 07:00:55,30,8,b\n"
        "2017-10-09 07:02:00,30,0,without GPUs\n2017-10-09 07:02:00,0,1,took no time\n",
    )
    assert read_trace(path) == [TraceJob(0.0, 30.0, 8), TraceJob(60.0, 66.0, 1)]


def test_times_may_be_seconds_or_have_a_zone(tmp_path: Path) -> None:
    text = "timestamp,duration,num_gpus\n2017-10-09T07:00:00+02:00,1,1\n1507525205,1,2\n"
    assert read_trace(write(tmp_path, text)) == [TraceJob(0.0, 1.0, 1), TraceJob(5.0, 1.0, 2)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("when,duration\n1,2\n", "has no column timestamp, num_gpus; it has when, duration; its first line names"),
        ("", "has no column timestamp, duration, num_gpus"),
        ("timestamp,duration,num_gpus\nyesterday,1,1\n", "line 2 of trace .* is no job"),
        ("timestamp,duration,num_gpus\n1,1,1\n2,1,one\n", "line 3 of trace .* is no job"),
        ("timestamp,duration,num_gpus\n1,1\n", "line 2 of trace .* is no job"),
        ("timestamp,duration,num_gpus\n1,nan,1\n", "line 2 of trace .* a number that is none"),
        ("timestamp,duration,num_gpus\n1,inf,1\n", "line 2 of trace .* beyond 1e\\+12"),
        (f"timestamp,duration,num_gpus\n1,1,{'9' * 401}\n", "line 2 of trace .* beyond 1e\\+12"),
        ("timestamp,duration,num_gpus\n1,1,0\n", "has no job with a GPU"),
    ],
)
def test_one_that_is_none_says_where_and_what_to_write(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(NeedsHuman, match=words):
        read_trace(write(tmp_path, text))


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(NeedsHuman, match="cannot be read"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"timestamp,duration,num_gpus\n\xff\xfe\n")
    with pytest.raises(NeedsHuman, match="cannot be read"):
        read_trace(tmp_path / "binary.csv")


def test_the_load_counts_only_what_lies_between_the_two_moments() -> None:
    jobs = [TraceJob(0.0, 100.0, 4), TraceJob(50.0, 1000.0, 2)]
    assert mean_gpus(jobs, 0.0, 100.0) == (4 * 100 + 2 * 50) / 100


def test_a_trace_is_scaled_by_copies_that_are_not_submitted_together() -> None:
    jobs = [TraceJob(1e6 + number, 60.0, 1) for number in range(1000)]
    assert len(scale_trace(jobs, 0.5, seed=1)) == pytest.approx(500, abs=60)
    scaled = scale_trace(jobs, 3.5, seed=1)
    assert len(scaled) == pytest.approx(3500, abs=60)
    assert len({job.submitted for job in scaled}) == len(scaled)
    assert [job.submitted for job in scaled] == sorted(job.submitted for job in scaled)
    assert scale_trace(jobs, 3.5, seed=1) == scaled
    assert scale_trace(jobs, 1.0, seed=9) == jobs


def test_a_trace_that_would_have_to_be_scaled_beyond_all_measure_is_refused() -> None:
    with pytest.raises(NeedsHuman, match="scaled 70,000,000,000 times"):
        scale_trace([TraceJob(0.0, 1.0, 1)], 7e10, seed=1)


def test_a_file_from_a_spreadsheet_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "excel.csv"
    path.write_bytes(b"\xef\xbb\xbftimestamp,duration,num_gpus\r\n1,2,3\r\n")
    assert read_trace(path) == [TraceJob(0.0, 2.0, 3)]
