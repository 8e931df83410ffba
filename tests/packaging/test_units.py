"""The unit files: what systemd itself says of them, and that the guide tells the same."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from provisioner.cli.environment import SERVICES
from tests.packaging.made import CHECKOUT
from tests.tools import installed

UNITS: Final = sorted((CHECKOUT / "packaging/systemd").glob("*.service"))
_ROW: Final = re.compile(r"^\| `(provisioner-\w+)\.service` \|.*\| (\d\.\d) \|$", re.MULTILINE)
SCORES: Final = dict(_ROW.findall((CHECKOUT / "docs/packages.md").read_text()))


def test_every_service_has_a_unit_and_the_guide_tells_its_score() -> None:
    assert {unit.stem for unit in UNITS} == {f"provisioner-{service}" for service in SERVICES} == set(SCORES)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_no_more_exposure_than_the_guide_tells(unit: Path) -> None:
    """A score is exposure: 0 for what can do nothing, 10 for what may do everything. Another version of systemd, which
    knows other things to switch off, may differ by a tenth or two."""
    analyze = installed("systemd-analyze")
    told = float(SCORES[unit.stem])
    command = [analyze, "security", "--offline=true", f"--threshold={round(told * 10) + 2}", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-400:] + done.stderr
    found = re.search(r"exposure level for \S+: (\d+\.\d)", done.stdout)
    assert found is not None
    assert abs(float(found[1]) - told) < 0.35, "write the score into docs/packages.md anew"


def test_a_unit_that_gives_nothing_up_is_found_exposed(tmp_path: Path) -> None:
    bare = tmp_path / "bare.service"
    bare.write_text("[Service]\nExecStart=/bin/true\n")
    command = [installed("systemd-analyze"), "security", "--offline=true", "--threshold=35", str(bare)]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_every_line(unit: Path, tmp_path: Path) -> None:
    program = shutil.which("true")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace("/opt/provisioner/bin/provisioner", str(program)))
    command = [installed("systemd-analyze"), "verify", "--man=no", "--recursive-errors=no", str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_the_same_on_every_host_and_hold_no_secret(unit: Path) -> None:
    text, service = unit.read_text(), unit.stem.removeprefix("provisioner-")
    assert f"EnvironmentFile=-/etc/provisioner/{service}.env\n" in text
    assert f"ExecStart=/opt/provisioner/bin/provisioner --log-json {service}\n" in text
    for variable in re.findall(r"^Environment=(\w+)=", text, re.MULTILINE):
        assert variable == "HOME" or variable.startswith(f"PROVISIONER_{service.upper()}_")
    assert text.index("EnvironmentFile=") < text.index("ExecStart=")
