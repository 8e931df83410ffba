"""`provisioner rollout simulate`, as an operator calls it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from provisioner.api.machinery.errors import NeedsHuman
from provisioner.cli.main import provisioner


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    rows = "".join(f"{number * 3600},{8 * 3600},2\n" for number in range(24 * 30))
    path.write_text(f"timestamp,duration,num_gpus\n{rows}")
    return path


def test_policies_are_compared_and_the_first_one_is_drawn(trace: Path, tmp_path: Path) -> None:
    svg = tmp_path / "fleet.svg"
    arguments = ["rollout", "simulate", "--trace", str(trace), "--nodes", "4", "--load", "50", "--begin", "10"]
    arguments += ["--policy", "provisioner", "--policy", "idle-only", "--svg", str(svg)]
    ran = CliRunner().invoke(provisioner, arguments, catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    asked, headings, ours, other, drew = ran.output.splitlines()[-5:]
    assert asked.startswith("4 servers of 8 GPUs; jobs ask for")
    assert headings.startswith("policy")
    assert ours.split()[:1] == ["provisioner"]
    assert ours.split()[4] == "0", "nothing is interrupted"
    assert other.split()[0] == "idle-only"
    assert float(other.split()[1]) >= float(ours.split()[1])
    assert drew == f"drew {svg}"
    assert svg.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max-parallel", "many"], "'many' is neither a count nor a share"),
        (["--max-parallel", "200%"], "'200%' is more than all"),
        (["--max-parallel", "9" * 5000 + "%"], "neither a count nor a share"),
        (["--max-parallel", "0"], "allow at least 1"),
        (["--begin", "90"], "no job of the trace that fits runs around day 90"),
        (["--nodes", "0"], "0 is not in the range"),
        (["--nodes", "20000", "--load", "150", "--gpus", "64"], "have to be scaled"),
        *((["--begin", bad], f"{bad!r} is no number from 0 to 36500") for bad in ("nan", "inf", "-7", "1e300", "x")),
        *((["--attempt", bad], f"{bad!r} is no number from 1 to 86400") for bad in ("nan", "0", "-5", "1e300")),
        (["--longest", "nan"], "'nan' is no number from 0.01"),
        (["--soak", "999999999999999999"], "is not in the range"),
        (["--canary", "-1"], "is not in the range"),
        (["--svg", "/nowhere/at/all.svg"], "there is no folder /nowhere/at"),
    ],
)
def test_what_cannot_be_simulated_says_what_to_write(trace: Path, arguments: list[str], words: str) -> None:
    usual = ["rollout", "simulate", "--trace", str(trace), "--nodes", "4", "--begin", "10"]
    ran = CliRunner().invoke(provisioner, [*usual, *arguments])
    assert isinstance(ran.exception, SystemExit | NeedsHuman), "what a person sees, and no traceback"
    assert words in ran.output + str(ran.exception)
