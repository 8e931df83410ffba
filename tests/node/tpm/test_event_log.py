"""The firmware's event log: whole or left out, with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.node.prover import MAX_BYTES, PATH, read_event_log
from tests.node.made_machine import write


@pytest.mark.parametrize("size", [1, 5000, MAX_BYTES])
def test_a_log_is_read_whole(tmp_path: Path, size: int) -> None:
    write(tmp_path, PATH[1:], "x" * size)
    assert read_event_log(str(tmp_path)) == (b"x" * size, "")


def test_a_log_that_is_too_long_is_left_out_and_not_cut(tmp_path: Path) -> None:
    write(tmp_path, PATH[1:], "x" * (MAX_BYTES + 1))
    assert read_event_log(str(tmp_path)) == (
        b"",
        "the event log of the firmware has more than 128 KiB and is left out",
    )


def test_a_firmware_that_keeps_no_log_is_no_error(tmp_path: Path) -> None:
    log, why = read_event_log(str(tmp_path))
    assert log == b""
    assert why == f"there is no event log of the firmware ({tmp_path}{PATH} is not there)"


def test_an_empty_log_is_told_of(tmp_path: Path) -> None:
    write(tmp_path, PATH[1:], "")
    assert read_event_log(str(tmp_path)) == (b"", "the event log of the firmware is empty")


def test_a_log_that_cannot_be_read_is_told_of(tmp_path: Path) -> None:
    (tmp_path / PATH[1:]).mkdir(parents=True)
    log, why = read_event_log(str(tmp_path))
    assert log == b""
    assert "cannot be read" in why
