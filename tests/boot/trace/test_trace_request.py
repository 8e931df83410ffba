"""What asks for a trace, and what does not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from provisioner.api.servers.trace import LONGEST_TRACE, TRACE_ANNOTATION, read_trace, trace_value
from tests.boot.objects import NOON

SOON = NOON + timedelta(minutes=15)
MAC = "52:54:00:12:34:56"


def asking(value: object) -> dict[str, object]:
    return {"metadata": {"name": "n", "annotations": {TRACE_ANNOTATION: value}}}


def test_what_was_written_is_read() -> None:
    read = read_trace(asking(trace_value(SOON, [MAC])), NOON)
    assert read is not None
    assert (read.until, read.macs) == (SOON, {MAC})


@pytest.mark.parametrize(
    "value",
    [
        "", " ", "yes", "2026-01-02T12:15:00", "12:15", None, 7, ["2026-01-02T12:15:00Z"],
        trace_value(NOON), trace_value(NOON - timedelta(seconds=1)), trace_value(NOON + timedelta(days=1)),
        trace_value(SOON, ["no-mac"]), trace_value(SOON, [f"52:54:00:00:00:{n:02x}" for n in range(9)]),
        trace_value(SOON) + " " * 300, trace_value(SOON, ["01:00:5e:00:00:01"]), "9" * 200,
    ],
)  # fmt: skip
def test_anything_else_asks_for_nothing(value: object) -> None:
    assert read_trace(asking(value), NOON) is None


def test_a_trace_ends_by_itself_and_none_lasts_for_ever() -> None:
    wanted = asking(trace_value(NOON + LONGEST_TRACE))
    assert read_trace(wanted, NOON) is not None
    assert read_trace(wanted, NOON + LONGEST_TRACE) is None


def test_without_an_annotation_nothing_is_asked() -> None:
    assert read_trace(None, NOON) is None
    assert read_trace({"metadata": {"name": "n"}}, NOON) is None
