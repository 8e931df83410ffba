"""The attacks of tests/network/isolation once more, where VPCs are VRFs: on the kernel of an image, in a machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import pytest

from lab.cli.parts import demo_state
from tests.network.vrf.guest import ENDED, WALL_SECONDS, run_tests
from tests.tools import lab_tools, missing

ATTACKS: Final = "tests/network/isolation/test_attacks.py"
STORM: Final = f"--deselect={ATTACKS}::test_a_storm_of_a_host_is_answered_in_measure"
"""Emulated, no storm is fast enough."""
VRFS: Final = (
    "tests/network/agent/test_drift_and_residue.py::test_vrfs_are_enforced_or_what_lacks_them_is_told_and_isolated"
)
"""Elsewhere it shows what becomes of them where the kernel has none."""
SOME: Final = "same_addresses or IPv4 or stranger or not_its_own or vrfs_are_enforced"


@pytest.fixture
def image() -> Path:
    """The image of the lab of tests, whose kernel and modules are the guest's."""
    record = demo_state("tests").image_record("gpu")
    return Path(record.read_text()) if record.exists() else missing("a built image, whose kernel has VRFs,")


@pytest.mark.timeout(WALL_SECONDS + 120)
def test_tenants_are_kept_apart_by_vrfs_as_by_namespaces(image: Path, tmp_path: Path) -> None:
    """A part of the attacks; all of them with ISOLATION=whole, as in `make soak`, which takes twice as long or more."""
    chosen = [] if os.environ.get("ISOLATION") == "whole" else ["-k", f"'{SOME}'"]
    said = run_tests(lab_tools(), image, tmp_path, ["-q", ATTACKS, VRFS, STORM, *chosen], VPC_DOMAINS="vrf")
    ended = re.search(rf"{ENDED}(\d+)", said)
    assert ended is not None, said[-4000:]
    assert ended[1] == "0", said[-8000:]
    assert re.search(r"\d+ passed", said), said[-2000:]
