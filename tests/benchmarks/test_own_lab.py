"""The lab of a benchmark."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from tests.benchmarks.own_lab import run_in_lab


@pytest.mark.parametrize("failing", [None, "up", "some_bench"])
def test_a_lab_is_taken_down_whatever_becomes_of_the_benchmark(
    monkeypatch: pytest.MonkeyPatch, failing: str | None
) -> None:
    ran: list[Sequence[str]] = []

    def fake_run(command: Sequence[str], *, check: bool, **_: Any) -> None:
        ran.append(command)
        if check and failing is not None and any(failing in word for word in command):
            raise subprocess.CalledProcessError(1, command)

    monkeypatch.setattr(subprocess, "run", fake_run)
    try:
        run_in_lab("bench-x", ["--servers=UEFI"], "some_bench", ["--inside", "file"])
    except subprocess.CalledProcessError:
        assert failing is not None
    steps = [command[-1] if "--inside" in command else command[3] for command in ran]
    assert steps == {None: ["up", "file", "down"], "up": ["up", "down"], "some_bench": ["up", "file", "down"]}[failing]
